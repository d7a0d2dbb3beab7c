"""What is read from a tool call while it is written, and who reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Began:
    """A call of a tool that was offered."""

    name: str


@dataclass(frozen=True, slots=True)
class Arguments:
    """A piece of its arguments; all pieces of a call together are one JSON object."""

    text: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The call is complete."""


@dataclass(frozen=True, slots=True)
class Broken:
    """What is there is no call that could be run; one that began is given up.

    `text` is all of it as it was written, with the marks around it.
    """

    text: str


Piece = Began | Arguments | Ended | Broken


class CallReader(Protocol):
    """One envelope, which may hold several calls: reads on from behind its start mark.

    Any chunking of the same text gives the same pieces, but for where arguments are parted.
    """

    @property
    def rest(self) -> str | None:
        """The text behind the envelope once it is over; then nothing more is fed."""
        ...

    def feed(self, text: str) -> Sequence[Piece]: ...

    def end(self) -> Sequence[Piece]:
        """The text ended: a call that is complete but for its end mark counts."""
        ...
