"""What an edit of somebody's settings file is made of. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Item:
    """The element of a list that has `value` under `key`."""

    key: str
    value: str


Step = str | Item
Route = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """One value and where it belongs, from the root of the file."""

    route: Route
    value: Any

    @property
    def place(self) -> str:
        """The route for people: `models[id=Alpha].name`."""
        parts = (f"[{s.key}={s.value}]" if isinstance(s, Item) else f".{s}" for s in self.route)
        return "".join(parts).removeprefix(".")


class NotEditable(Exception):
    """Why a text cannot be edited without harm; `str()` continues the words "the file"."""


def nested(route: Sequence[Step], value: Any) -> Any:
    """The value inside the objects and lists that lead to it."""
    for step in reversed(route):
        value = [{step.key: step.value} | value] if isinstance(step, Item) else {step: value}
    return value
