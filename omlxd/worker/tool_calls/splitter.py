"""Tool calls, parted from the text of the answer.

Blanks before a call, and between calls, belong to the format. What turns out to be no call is text
again, with all marks; of a call that had begun by then that is told with its end.
"""

from __future__ import annotations

from collections.abc import Callable

from omlxd.worker.marks import scan
from omlxd.worker.reasoning import Said
from omlxd.worker.tool_calls.pieces import Began, Broken, CallReader, Ended, Piece


class CallSplitter:
    """The answer of one choice. `start` opens an envelope, which is read by a new `reader`."""

    def __init__(self, start: str, reader: Callable[[], CallReader]) -> None:
        self._start, self._new_reader = start, reader
        self._reader: CallReader | None = None
        self._held = ""
        self._blanks = ""  # shown only if no call follows
        self._has_begun = False  # a call that has not ended
        self.num_complete = 0

    @property
    def num_held(self) -> int:
        """Characters that were fed and of which it is not known yet what they are."""
        return len(self._held) + len(self._blanks)

    def feed(self, text: str, *, final: bool = False) -> list[Said | Piece]:
        """`final`: no more follows."""
        self._held += text
        parts: list[Said | Piece] = []
        while self._read(parts, final) if self._reader is not None else self._text(parts, final):
            pass
        return parts

    def _text(self, parts: list[Said | Piece], final: bool) -> bool:
        scanned = scan(self._held, (self._start,), final=final)
        self._held = scanned.rest
        text = self._blanks + scanned.text
        shown = text.rstrip()
        if final and scanned.mark is None and not self.num_complete:
            shown = text
        if shown:
            parts.append(Said(shown))
        self._blanks = "" if final and scanned.mark is None else text[len(shown) :]
        if scanned.mark is None:
            return False
        self._reader = self._new_reader()
        return True

    def _read(self, parts: list[Said | Piece], final: bool) -> bool:
        assert self._reader is not None
        text, self._held = self._held, ""
        pieces = [*self._reader.feed(text)]
        if final and self._reader.rest is None:
            pieces += self._reader.end()
        for piece in pieces:
            parts.append(self._told(piece))
        if self._reader.rest is None:
            return False
        self._held, self._reader = self._reader.rest, None
        return bool(self._held) or final

    def _told(self, piece: Piece) -> Said | Piece:
        match piece:
            case Broken() if not self._has_begun:
                text, self._blanks = self._blanks + piece.text, ""
                return Said(text)
            case Began():
                self._has_begun, self._blanks = True, ""
            case Ended() | Broken():
                self._has_begun = False
                self.num_complete += isinstance(piece, Ended)
        return piece
