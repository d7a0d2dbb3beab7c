"""What reading and comparing files reports; light enough for omlxctl's fast paths."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct


class Problem(Struct, frozen=True):
    """One thing wrong with a file. Lines and columns count from 1; columns are characters."""

    file: str
    line: int
    column: int
    key: str
    message: str
    hint: str = ""


class Change(Struct, frozen=True):
    """One key that differs between what is in force and a candidate."""

    key: str  # dotted, models."X".ttl style
    old: Any
    new: Any
    reload: Literal["live", "drain", "rebind"]
    model: str = ""


class OriginValue(Struct, frozen=True):
    """One value in force and where it was written; file "" = built-in default."""

    key: str
    value: Any
    file: str = ""
    line: int = 0
