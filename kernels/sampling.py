"""The next token from a model's logits: greedy, or drawn with temperature, top-k and top-p."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import orjson

from hailmesh.hail.errors import DeviceError, TooLarge, UsageError
from hailmesh.kernels.arguments import check_all, integer, number, optional, several

Logits = npt.NDArray[np.float32]
Mask = npt.NDArray[np.uint8]

_MAX_BYTES = 64 << 10
_MAX_ID = 2**31 - 1
_COLDEST = 0.001
_FIRST_GUESS = 256


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to choose. `temperature` 0 is greedy, and then top-k, top-p and seed say nothing. `top_k` 0 and
    `top_p` 1 don't restrict. `suppress` and ids above `max_id` are never chosen. `mask` is the handle of a
    u8 tensor, for whoever samples to resolve. `logprobs` asks for that many of the likeliest tokens."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    suppress: tuple[int, ...] = ()
    max_id: int | None = None
    mask: int | None = None
    logprobs: int = 0

    @classmethod
    def parse(cls, raw: bytes) -> SamplingParams:
        """From a JSON object (empty bytes: the defaults); UsageError names the field that is wrong. Parsed
        once per distinct `raw`, since a unit sends the same for each token."""
        if len(raw) > _MAX_BYTES:
            raise TooLarge(f"sampling parameters take at most {_MAX_BYTES} bytes, got {len(raw)}")
        return _parse(bytes(raw))


@dataclass(frozen=True, slots=True)
class Sampled:
    """`logprob` and `top` ((token, logprob), likeliest first) are None and empty unless asked for. They are
    of the model's own distribution over the allowed tokens, before temperature, top-k and top-p."""

    token: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


def sample(
    logits: Logits, params: SamplingParams, rng: np.random.Generator, mask: Mask | None = None
) -> Sampled:
    """Chooses from float32 logits [vocabulary]; `mask` u8 [vocabulary], 0 forbids. Takes one number from
    `rng` per drawn token, none when greedy. `logits` are left as they are. UsageError if nothing is
    allowed or the mask has another length; DeviceError if the logits are not numbers."""
    greedy = params.temperature == 0 and params.logprobs == 0
    if greedy and mask is None:
        token = _likeliest(logits, params)
        if token is not None:
            return Sampled(token)
    allowed = _allowed(logits, params, mask)
    best = int(allowed.argmax())
    peak = float(allowed[best])
    if not math.isfinite(peak):
        raise UsageError("no token is left to choose from: mask, suppress and max_id forbid all of them")
    token = best if params.temperature == 0 else _draw(allowed, peak, params, rng)
    if params.logprobs == 0:
        return Sampled(token)
    norm = peak + math.log(float(np.exp(allowed - np.float32(peak)).sum(dtype=np.float64)))
    top = _descending(allowed, min(params.logprobs, len(allowed)))
    pairs = tuple((int(i), float(allowed[i]) - norm) for i in top if allowed[i] > -np.inf)
    return Sampled(token, float(allowed[token]) - norm, pairs)


def _likeliest(logits: Logits, params: SamplingParams) -> int | None:
    """The greedy choice without copying the logits; None when the plain winner is suppressed."""
    candidates = logits if params.max_id is None else logits[: params.max_id + 1]
    token = int(candidates.argmax())
    if not math.isfinite(candidates[token]):
        raise _not_numbers()
    return None if token in params.suppress else token


def _allowed(logits: Logits, params: SamplingParams, mask: Mask | None) -> Logits:
    """A copy of the logits, cut at max_id, with -inf for what is forbidden."""
    end = len(logits) if params.max_id is None else min(params.max_id + 1, len(logits))
    allowed: Logits = logits[:end].copy()
    if not np.isfinite(allowed.max()):
        raise _not_numbers()
    suppress = [token for token in params.suppress if token < end]
    allowed[suppress] = -np.inf
    if mask is not None:
        if mask.shape != logits.shape:
            raise UsageError(f"expected a mask of {len(logits)} bytes, one a token, got {mask.shape}")
        allowed[mask[:end] == 0] = -np.inf
    return allowed


def _draw(allowed: Logits, peak: float, params: SamplingParams, rng: np.random.Generator) -> int:
    """Temperature, then top-k, then top-p of what is left, then one draw by the cumulated weights."""
    order, weights, total = _candidates(allowed, peak, params)
    cumulated = weights.cumsum(dtype=np.float64)
    if params.top_p < 1:
        cumulated = cumulated[: int(np.searchsorted(cumulated, params.top_p * total)) + 1]
    drawn = int(np.searchsorted(cumulated, rng.random() * cumulated[-1], side="right"))
    return int(order[min(drawn, len(cumulated) - 1)])


def _candidates(
    allowed: Logits, peak: float, params: SamplingParams
) -> tuple[npt.NDArray[np.intp], Logits, float]:
    """(tokens, their unnormalised probabilities, the sum over all that top-k leaves); descending wherever
    top-k or top-p needs the order, and with top-p only as many tokens as reach it."""
    if params.top_k:
        order = _descending(allowed, min(params.top_k, len(allowed)))
        weights = _weights(allowed[order], peak, params.temperature)
        return order, weights, float(weights.sum(dtype=np.float64))
    weights = _weights(allowed, peak, params.temperature)
    total = float(weights.sum(dtype=np.float64))
    if params.top_p == 1:
        return np.arange(len(weights)), weights, total
    count = min(_FIRST_GUESS, len(weights))
    while True:
        order = _descending(allowed, count)
        if count == len(weights) or weights[order].sum(dtype=np.float64) >= params.top_p * total:
            return order, weights[order], total
        count = min(count * 8, len(weights))


def _weights(logits: Logits, peak: float, temperature: float) -> Logits:
    with np.errstate(over="ignore"):  # a tiny temperature leaves the peak alone with a weight
        weights: Logits = logits - np.float32(peak)
        weights /= np.float32(temperature)
        np.exp(weights, out=weights)
    return weights


def _descending(values: Logits, count: int) -> npt.NDArray[np.intp]:
    """The `count` largest, largest first; of equals the lower token first."""
    if count < len(values):
        order = np.sort(np.argpartition(values, len(values) - count)[-count:])
    else:
        order = np.arange(len(values))
    return order[np.argsort(-values[order], kind="stable")]


def _not_numbers() -> DeviceError:
    return DeviceError("the graph's logits are not finite numbers; its weights or inputs are broken")


@lru_cache(maxsize=128)
def _parse(raw: bytes) -> SamplingParams:
    if not raw:
        return SamplingParams()
    try:
        given = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise UsageError(f"sampling parameters are not JSON: {error}") from error
    fields = check_all("sampling parameters", given, _CHECKS)
    return SamplingParams(**{name: value for name, value in fields.items() if value is not None})


def _temperature(name: str, value: object) -> float:
    temperature: float = number(0, 1000)(name, value)
    if 0 < temperature < _COLDEST:
        raise UsageError(f"{name} is 0 for greedy, or from {_COLDEST} to 1000, not {value!r}")
    return temperature


_CHECKS = {
    "temperature": optional(_temperature),
    "top_k": optional(integer(0, _MAX_ID)),
    "top_p": optional(number(1e-6, 1)),
    "seed": optional(integer(0, 2**64 - 1)),
    "suppress": optional(several(integer(0, _MAX_ID), least=0, most=_MAX_ID)),
    "max_id": optional(integer(0, _MAX_ID)),
    "mask": optional(integer(1, _MAX_ID)),
    "logprobs": optional(integer(0, 100)),
}
