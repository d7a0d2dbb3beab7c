"""Values put into JSON text that people keep. Pure.

All that is not replaced stays byte for byte: order, layout, comments and trailing commas too, which
some clients allow. JSON5's names and strings without double quotes are not followed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from omlxctl.textedit import Entry, Item, NotEditable, Route, Step, nested

_GAP = re.compile(r"(?:[ \t\r\n]|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_INDENT = re.compile(r'^([ \t]+)"', re.MULTILINE)
_BOM = "\ufeff"


@dataclass(slots=True)
class _Node:
    """One value: `text[start:end]`, and the values in it."""

    start: int
    end: int = 0
    value: Any = None
    members: dict[str, _Node] = field(default_factory=dict)
    items: list[_Node] = field(default_factory=list)
    comma: bool = False  # after the last one in it

    def last(self) -> _Node | None:
        inside = [*self.members.values(), *self.items]
        return inside[-1] if inside else None


def put(text: str, entries: Iterable[Entry]) -> str:
    """`text` with every entry in it; an empty text becomes an object. Raises NotEditable."""
    if not text.strip().strip(_BOM):
        text = "{}\n"
    for entry in entries:
        text = _put(text, entry)
    return text


def value_of(text: str) -> Any:
    """What the text says, comments left out. Raises NotEditable."""
    return _parse(text).value


def _put(text: str, entry: Entry) -> str:
    here, depth = _parse(text), 0
    for at, step in enumerate(entry.route):
        child = _child(here, step, entry.route[: at + 1])
        if child is None:
            return _insert(text, here, _Addition(step, entry.route[at + 1 :], entry.value), depth)
        here, depth = child, depth + 1
    if _is_same(here.value, entry.value):
        return text
    return text[: here.start] + _dump(text, entry.value, depth) + text[here.end :]


def _child(here: _Node, step: Step, route: Route) -> _Node | None:
    """What the step leads to; None = it is to be added."""
    wanted: type = list if isinstance(step, Item) else dict
    if not isinstance(here.value, wanted):
        name = ".".join(str(part) for part in route[:-1] if isinstance(part, str)) or "it"
        what = "a list" if wanted is list else "an object"
        raise NotEditable(f"has something else where {name} must be {what}")
    if not isinstance(step, Item):
        return here.members.get(step)
    found = (item for item in here.items if item.members.keys() >= {step.key})
    return next((item for item in found if item.members[step.key].value == step.value), None)


def _is_same(one: Any, other: Any) -> bool:
    """As JSON has it: true is not 1."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


# ------------------------------------------------------------------ writing


@dataclass(frozen=True, slots=True)
class _Addition:
    """A member or an element that is not there yet."""

    step: Step
    rest: Route  # from it to the value
    value: Any

    def text(self, around: str, depth: int) -> str:
        if isinstance(self.step, Item):
            (element,) = nested((self.step, *self.rest), self.value)
            return _dump(around, element, depth)
        body = _dump(around, nested(self.rest, self.value), depth)
        return f"{json.dumps(self.step, ensure_ascii=False)}: {body}"


def _insert(text: str, here: _Node, addition: _Addition, depth: int) -> str:
    """Behind all that stands in `here`, comments too, on a line of its own."""
    last = here.last()
    at, close = (last.end if last else here.start + 1), here.end - 1
    comma = "," if last and not here.comma else ""
    kept = text[at:close].rstrip()
    newline, unit = _newline(text), _unit(text)
    inner = newline + unit * (depth + 1) + addition.text(text, depth + 1)
    return text[:at] + comma + kept + inner + newline + unit * depth + text[close:]


def _dump(text: str, value: Any, depth: int) -> str:
    """The value in the layout of the text around it."""
    unit = _unit(text)
    lines = json.dumps(value, indent=unit, ensure_ascii=False).split("\n")
    return (_newline(text) + unit * depth).join(lines)


def _unit(text: str) -> str:
    found = _INDENT.search(text)
    return found[1] if found else "  "


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


# ------------------------------------------------------------------ reading


def _parse(text: str) -> _Node:
    try:
        return _Parser(text).whole()
    except RecursionError:
        raise NotEditable("is nested too deeply") from None


class _Parser:
    """One walk over one text; `at` is the place that is looked at."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = len(_BOM) if text.startswith(_BOM) else 0

    def whole(self) -> _Node:
        self.gap()
        node = self.node()
        self.gap()
        if self.at < len(self.text):
            raise self.wrong("the end")
        return node

    def node(self) -> _Node:
        start = self.text[self.at : self.at + 1]
        if start == "{":
            return self.object()
        if start == "[":
            return self.array()
        node = _Node(self.at)
        node.value = self.string() if start == '"' else self.scalar()
        node.end = self.at
        return node

    def object(self) -> _Node:
        node = _Node(self.at)
        for _ in self.children(node, "}"):
            line = self.line()
            name = self.string()
            self.gap()
            self.expect(":")
            self.gap()
            if name in node.members:
                raise NotEditable(f"has {json.dumps(name)} twice, again on line {line}")
            node.members[name] = self.node()
        node.value = {name: inner.value for name, inner in node.members.items()}
        return node

    def array(self) -> _Node:
        node = _Node(self.at)
        for _ in self.children(node, "]"):
            node.items.append(self.node())
        node.value = [inner.value for inner in node.items]
        return node

    def children(self, node: _Node, close: str) -> Iterable[None]:
        """Yields at the start of every one; sets what is known at the end."""
        self.at += 1
        self.gap()
        while not self.text.startswith(close, self.at):
            if node.last() is not None and not node.comma:
                raise self.wrong(f"a comma or {close}")
            yield
            self.gap()
            node.comma = self.text.startswith(",", self.at)
            if node.comma:
                self.at += 1
                self.gap()
        self.at += 1
        node.end = self.at

    def string(self) -> str:
        found = _STRING.match(self.text, self.at)
        if found is None:
            raise self.wrong('a string in "double quotes"')
        try:
            value = json.loads(found[0])
        except ValueError:
            raise self.wrong("a string that JSON can read") from None
        self.at = found.end()
        assert isinstance(value, str)
        return value

    def scalar(self) -> Any:
        found = _SCALAR.match(self.text, self.at)
        if found is None:
            raise self.wrong("a value")
        self.at = found.end()
        return json.loads(found[0])

    def gap(self) -> None:
        found = _GAP.match(self.text, self.at)
        assert found is not None
        self.at = found.end()

    def expect(self, mark: str) -> None:
        if not self.text.startswith(mark, self.at):
            raise self.wrong(mark)
        self.at += 1

    def line(self) -> int:
        return self.text.count("\n", 0, self.at) + 1

    def wrong(self, wanted: str) -> NotEditable:
        return NotEditable(f"is not the JSON that can be edited: line {self.line()} needs {wanted}")
