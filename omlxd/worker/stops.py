"""Stop strings in the text of one choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from omlxd.worker.marks import scan


@dataclass(frozen=True, slots=True)
class Stopped:
    """`text` may be shown; `stop` is the stop string that matched right after it."""

    text: str
    stop: str | None = None


class StopScanner:
    """After a match, and after `flush`, it is used up."""

    def __init__(self, stops: Sequence[str]) -> None:
        assert all(stops), "an empty stop string matches everywhere"
        self._stops = tuple(set(stops))
        self._held = ""

    def feed(self, text: str) -> Stopped:
        if not self._stops or not text:
            return Stopped(text)
        return self._scan(text, final=False)

    def flush(self) -> Stopped:
        """The text ended: what could have become a stop string did not."""
        return self._scan("", final=True)

    def _scan(self, text: str, *, final: bool) -> Stopped:
        scanned = scan(self._held + text, self._stops, final=final)
        self._held = "" if scanned.mark is not None else scanned.rest
        return Stopped(scanned.text, scanned.mark)
