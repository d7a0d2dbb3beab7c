"""Values put into JSON text that people keep."""

from __future__ import annotations

import contextlib
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlxctl.jsonedit import put, value_of
from omlxctl.textedit import Entry, Item, NotEditable

COMMENTED = """{
    // mine
    "a": 1, // one
    "p": {"q": [1, /* two */ 2,]},
    "theme": "dark", /* last */
}
"""
NAMES = st.text('ab"\\/{}[],:é\n', max_size=4)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=4)
ROUTES = st.lists(NAMES, min_size=1, max_size=3).map(tuple)
GAPS = ("", " ", "\n", "\r\n", "\t", "// , } ]\n", '/* " { */', "\n  // x\n  ")


def spread(value: Any, rng: random.Random) -> str:
    """The value as JSON with gaps, comments and trailing commas wherever they may be."""

    def gap() -> str:
        return rng.choice(GAPS)

    def inside(parts: list[str]) -> str:
        comma = "," if parts and rng.random() < 0.5 else ""
        return gap() + f",{gap()}".join(part + gap() for part in parts) + comma + gap()

    if isinstance(value, dict):
        members = [f"{json.dumps(k)}{gap()}:{gap()}{spread(v, rng)}" for k, v in value.items()]
        return "{" + inside(members) + "}"
    if isinstance(value, list):
        return "[" + inside([spread(item, rng) for item in value]) + "]"
    return json.dumps(value)


def merged(document: Any, route: tuple[str, ...], value: Any) -> Any:
    """What a put must lead to; LookupError where something else is in the way."""
    if not route:
        return value
    if not isinstance(document, dict):
        raise LookupError
    return document | {route[0]: merged(document.get(route[0], {}), route[1:], value)}


@given(OBJECTS, ROUTES, VALUES, st.integers(0, 1 << 30))
def test_a_put_changes_one_value_and_nothing_else(
    document: dict[str, Any], route: tuple[str, ...], value: Any, seed: int
) -> None:
    """Whatever the layout, the text then says what was there with the value in its place."""
    text = spread(document, random.Random(seed))
    try:
        expected = merged(document, route, value)
    except LookupError:
        with pytest.raises(NotEditable, match="must be an object"):
            put(text, [Entry(route, value)])
        return
    new = put(text, [Entry(route, value)])
    assert value_of(new) == expected
    assert list(value_of(new)) == list(expected)
    assert put(new, [Entry(route, value)]) == new


@given(OBJECTS, st.integers(0, 1 << 30))
def test_a_new_member_leaves_all_marks(document: dict[str, Any], seed: int) -> None:
    """But for blanks before the end, the old text stands there, with one comma more at most."""
    text = spread(document, random.Random(seed))
    new = "".join(put(text, [Entry(("new",), 1)]).split())
    old, body = "".join(text.split())[:-1], new.removesuffix('"new":1}')
    commas = [at for at, mark in enumerate(body) if mark == ","]
    assert old == body or any(old == body[:at] + body[at + 1 :] for at in commas)


@given(VALUES, st.integers(0, 1 << 30))
def test_any_layout_is_read(value: Any, seed: int) -> None:
    """Gaps, comments and trailing commas are no part of the value."""
    assert value_of(spread(value, random.Random(seed))) == value


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("twice")
    return dict(pairs)


def no_constant(name: str) -> Any:
    raise ValueError(name)


@given(st.text(max_size=12) | st.text('{}[]",:/*1ta \n\\', max_size=12))
def test_what_json_takes_is_read_as_json(text: str) -> None:
    """Any text is read or refused, and what JSON reads is read as it reads it."""
    try:
        read = value_of(text)
    except NotEditable:
        read = NotEditable
    with contextlib.suppress(ValueError):
        assert read == json.loads(text, object_pairs_hook=once, parse_constant=no_constant)


def test_comments_and_layout_stay() -> None:
    """A new member comes last with the indent of the file, and a value is replaced in place."""
    new = put(COMMENTED, [Entry(("env", "X"), "1"), Entry(("a",), 2)])
    assert new == (
        "{\n"
        "    // mine\n"
        '    "a": 2, // one\n'
        '    "p": {"q": [1, /* two */ 2,]},\n'
        '    "theme": "dark", /* last */\n'
        '    "env": {\n'
        '        "X": "1"\n'
        "    }\n"
        "}\n"
    )


@pytest.mark.parametrize("text", ["", " \n", "\ufeff", "{}", "{ // nothing yet\n}"])
def test_an_empty_file_takes_the_first_member(text: str) -> None:
    """Nothing at all, and an object without members, become an object with one."""
    assert value_of(put(text, [Entry(("a", "b"), 1)])) == {"a": {"b": 1}}


def test_line_ends_and_byte_order_mark_stay() -> None:
    """A file from elsewhere keeps its line ends and its mark."""
    new = put('\ufeff{\r\n\t"a": 1\r\n}\r\n', [Entry(("b",), {"c": 2})])
    assert new == '\ufeff{\r\n\t"a": 1,\r\n\t"b": {\r\n\t\t"c": 2\r\n\t}\r\n}\r\n'


def test_an_element_is_found_by_its_name() -> None:
    """An element of a list is changed where it is, and appended where it is not."""
    text = '{"models": [{"id": "A", "size": 1}, 7]}'
    one = put(text, [Entry(("models", Item("id", "A"), "size"), 2)])
    assert one == '{"models": [{"id": "A", "size": 2}, 7]}'
    two = put(text, [Entry(("models", Item("id", "B"), "size"), 2)])
    assert value_of(two) == {"models": [{"id": "A", "size": 1}, 7, {"id": "B", "size": 2}]}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": 1, "a": 2}', 'has "a" twice, again on line 1'),
        ("{\n\"a\": '1'}", "line 2 needs a value"),
        ("{a: 1}", 'line 1 needs a string in "double quotes"'),
        ('{"a": 1} {}', "line 1 needs the end"),
        ('{"a": 1 "b": 2}', "line 1 needs a comma or }"),
        ('{"a": NaN}', "line 1 needs a value"),
        ('{"a": "\\x"}', "line 1 needs a string that JSON can read"),
        ("[" * 100_000, "is nested too deeply"),
        ("[]", "has something else where it must be an object"),
        ('{"env": 1}', "has something else where env must be an object"),
    ],
)
def test_what_cannot_be_edited_is_refused(text: str, reason: str) -> None:
    """A text that is not followed to its end is not touched, and the reason says where."""
    with pytest.raises(NotEditable) as caught:
        put(text, [Entry(("env", "X"), "1")])
    assert reason in str(caught.value)


def test_a_list_is_not_an_object() -> None:
    """An element is not put where there is no list."""
    with pytest.raises(NotEditable, match="where models must be a list"):
        put('{"models": {}}', [Entry(("models", Item("id", "A"), "x"), 1)])


def test_true_is_not_one() -> None:
    """Values that Python takes for equal are not."""
    assert put('{"a": 1}', [Entry(("a",), True)]) == '{"a": true}'


def test_a_place_is_shown_with_its_name() -> None:
    """A route reads as people would write it."""
    assert Entry(("a", "models", Item("id", "A"), "x"), 1).place == "a.models[id=A].x"
