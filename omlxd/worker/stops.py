"""Stop strings in a stream of text.

The earliest match wins, and of those that begin there the longest. Held back is only the longest
tail that could still become part of a match, so any chunking of the text gives the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scanned:
    """`text` may be shown; `stop` is the stop string that matched right after it."""

    text: str
    stop: str | None = None


class StopScanner:
    """The text of one choice. After a match, and after `flush`, it is used up."""

    def __init__(self, stops: Sequence[str]) -> None:
        assert all(stops), "an empty stop string matches everywhere"
        self._stops = tuple(sorted(set(stops), key=len, reverse=True))
        self._held = ""

    def feed(self, text: str) -> Scanned:
        if not self._stops or not text:
            return Scanned(text)
        self._held += text
        match = self._first_match()
        begin = self._first_begin(match)
        if match is not None and begin is None:
            return self._cut(*match)
        shown = self._held if begin is None else self._held[:begin]
        self._held = self._held[len(shown) :]
        return Scanned(shown)

    def flush(self) -> Scanned:
        """The text ended: what could have become a stop string did not."""
        match = self._first_match()
        if match is not None:
            return self._cut(*match)
        shown, self._held = self._held, ""
        return Scanned(shown)

    def _cut(self, at: int, stop: str) -> Scanned:
        shown, self._held = self._held[:at], ""
        return Scanned(shown, stop)

    def _first_match(self) -> tuple[int, str] | None:
        """Longest first, and `min` keeps the first of equals."""
        found = [(self._held.find(stop), stop) for stop in self._stops]
        return min(
            ((at, stop) for at, stop in found if at >= 0), key=lambda pair: pair[0], default=None
        )

    def _first_begin(self, match: tuple[int, str] | None) -> int | None:
        """Where the earliest unfinished stop string begins that would win over `match`."""
        limit, matched = (len(self._held), 0) if match is None else (match[0], len(match[1]))
        begins = [
            begin
            for stop in self._stops
            if (begin := _unfinished(self._held, stop)) is not None
            and (begin < limit or (begin == limit and len(stop) > matched))
        ]
        return min(begins, default=None)


def _unfinished(text: str, stop: str) -> int | None:
    """Where the longest tail of `text` begins that is a beginning of `stop`, but not all of it."""
    at = text.find(stop[0], max(0, len(text) - len(stop) + 1))
    while at >= 0:
        if stop.startswith(text[at:]):
            return at
        at = text.find(stop[0], at + 1)
    return None
