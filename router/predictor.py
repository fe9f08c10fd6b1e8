"""How long a request will take, learned from those before it."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

WINDOW = 64
"""Samples that the 95th percentile is taken of."""
WEIGHT = 0.1
"""Of a new sample in the exponentially weighted mean and variance."""
PROBE_FIRST = 1.0
PROBE_LONGEST = 60.0
"""Seconds without a sample before a hopeless prediction is tested; doubled by each test that it passes."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Service time in seconds (variance in seconds²), from `samples` observations."""

    mean: float
    variance: float
    q95: float
    samples: int

    @property
    def deviation(self) -> float:
        return math.sqrt(self.variance)


@dataclass(slots=True)
class _Bucket:
    """The history of one size of input."""

    window: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    mean: float = 0.0
    variance: float = 0.0
    seen_ns: int = 0
    probe_after: float = PROBE_FIRST
    probing: bool = False

    def add(self, seconds: float, now_ns: int) -> None:
        if self.probing:
            self._judge(seconds)
        if not self.window:
            self.mean = seconds
        # West's exponentially weighted update, as for Welford's but with a constant gain.
        gain = max(WEIGHT, 1 / (len(self.window) + 1))
        step = seconds - self.mean
        self.mean += gain * step
        self.variance = (1 - gain) * (self.variance + gain * step * step)
        self.window.append(seconds)
        self.seen_ns = now_ns

    def _judge(self, seconds: float) -> None:
        """A probe that took less than half of what was predicted shows that the history is of no use."""
        self.probing = False
        if seconds < 0.5 * self.prediction().q95:
            self.window.clear()
            self.variance = 0.0
            self.probe_after = PROBE_FIRST
        else:
            self.probe_after = min(PROBE_LONGEST, 2 * self.probe_after)

    def prediction(self) -> Prediction:
        ordered = sorted(self.window)
        q95 = ordered[math.ceil(0.95 * len(ordered)) - 1]
        return Prediction(self.mean, self.variance, q95, len(ordered))


class Predictor:
    """Mean, variance and 95th percentile of service time per key (a unit version) and size of input, in
    octaves. Times are CLOCK_MONOTONIC nanoseconds and passed in."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, int], _Bucket] = {}

    def predict(self, key: str, size: float) -> Prediction | None:
        """None: nothing like it was ever seen."""
        bucket = self._buckets.get((key, octave(size)))
        return bucket.prediction() if bucket is not None else None

    def observe(self, key: str, size: float, seconds: float, now_ns: int) -> None:
        """A request of this size took `seconds` of service, or a warm-up run did."""
        self._buckets.setdefault((key, octave(size)), _Bucket()).add(seconds, now_ns)

    def probe(self, key: str, size: float, now_ns: int) -> bool:
        """Whether a request that the prediction would refuse should run all the same, to see whether the
        prediction still holds. So one cold spike doesn't refuse for ever. True once per interval."""
        bucket = self._buckets.get((key, octave(size)))
        if bucket is None:
            return True
        if now_ns - bucket.seen_ns < bucket.probe_after * 1e9:
            return False
        bucket.probing = True
        bucket.seen_ns = now_ns
        return True

    def probe_in(self, key: str, size: float, now_ns: int) -> float:
        """Seconds until `probe` says yes."""
        bucket = self._buckets.get((key, octave(size)))
        return 0.0 if bucket is None else max(0.0, bucket.probe_after - (now_ns - bucket.seen_ns) / 1e9)

    def forget(self, key: str) -> None:
        """The unit version is gone."""
        for known in [known for known in self._buckets if known[0] == key]:
            del self._buckets[known]


def octave(size: float) -> int:
    """The bucket of a size: sizes within a factor of two share one."""
    return math.floor(math.log2(size)) if size >= 1 else 0
