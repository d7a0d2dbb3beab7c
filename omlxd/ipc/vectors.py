"""Requests that end in vectors or scores instead of text, and the events that answer them.

Their stream is: `Accepted`, then one `Vector` or `Score` per input in any order, and the terminal
event, as of every request.
"""

from __future__ import annotations

from msgspec import Struct


class EmbedRequest(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Every input is a text, or token ids without special tokens."""

    request_id: str
    model: str  # engine id, already resolved
    api: str = ""
    inputs: list[str | list[int]]
    dimensions: int | None = None  # cut to so many, and made unit length again; None = all
    truncate: bool = False  # what is too long is cut at its end, not refused


class ScoreRequest(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """How well each document answers the query."""

    request_id: str
    model: str
    api: str = ""
    query: str
    documents: list[str]
    instruction: str | None = None  # for models that take one
    truncate: bool = True  # what is too long is cut at its end, not refused


class Vector(Struct, frozen=True, tag=True):
    request_id: str
    index: int  # of the input
    values: bytes  # float32, least significant byte first; unit length


class Score(Struct, frozen=True, tag=True):
    request_id: str
    index: int  # of the document
    score: float  # 0 to 1
