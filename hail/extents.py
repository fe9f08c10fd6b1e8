"""A first-fit allocator over numbered units (the arena's granules). It knows nothing of memory."""

from __future__ import annotations

from bisect import bisect_left


class Extents:
    """The free runs of `count` units, sorted, never adjacent: freed neighbours merge at once."""

    def __init__(self, count: int) -> None:
        self._starts: list[int] = [0] if count else []
        self._lengths: list[int] = [count] if count else []
        self.count = count
        self.free = count

    @property
    def largest(self) -> int:
        return max(self._lengths, default=0)

    def take(self, length: int, *, high: bool = False) -> int | None:
        """The start of a run of `length` units, which is taken: the lowest that fits, or the highest if
        `high` (so that long-lived runs keep away from short-lived ones). None if no run is long enough."""
        places = range(len(self._lengths))
        for at in reversed(places) if high else places:
            room = self._lengths[at]
            if room < length:
                continue
            start = self._starts[at]
            if room == length:
                del self._starts[at], self._lengths[at]
            elif high:
                self._lengths[at] = room - length
                start += room - length
            else:
                self._starts[at] = start + length
                self._lengths[at] = room - length
            self.free -= length
            return start
        return None

    def give(self, start: int, length: int) -> None:
        """Returns a run that `take` gave. AssertionError if part of it is free already."""
        at = bisect_left(self._starts, start)
        before = at > 0 and self._starts[at - 1] + self._lengths[at - 1]
        assert not before or before <= start, f"unit {start} is free already"
        assert at == len(self._starts) or start + length <= self._starts[at], (
            f"run at {start} is free already"
        )
        joins_before = at > 0 and before == start
        joins_after = at < len(self._starts) and start + length == self._starts[at]
        if joins_before and joins_after:
            self._lengths[at - 1] += length + self._lengths[at]
            del self._starts[at], self._lengths[at]
        elif joins_before:
            self._lengths[at - 1] += length
        elif joins_after:
            self._starts[at] = start
            self._lengths[at] += length
        else:
            self._starts.insert(at, start)
            self._lengths.insert(at, length)
        self.free += length

    def runs(self) -> list[tuple[int, int]]:
        """The free runs as (start, length), lowest first."""
        return list(zip(self._starts, self._lengths, strict=True))
