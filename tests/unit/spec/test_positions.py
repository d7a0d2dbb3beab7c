"""omlxd.spec.positions: every key of any valid document is found, and where it stands."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from omlxd.spec.positions import Path, nearest, positions

DOCUMENT = '''\
title = "a # b"  # comment
[server]   # [not.a.table]
listen = [
  "x", # ]
  'y',
]
"quoted key".inner = """
[fake]
k = 1 \\""" """
raw = \'\'\'
also = "fake"\'\'\'
inline = { a = 1, b.c = [ { d = 2 } ], 'e f' = "}" }
[models."a.b"]
ttl = 1979-05-27T07:32:00Z
[ models . 'c' ]
[[list]]
x = 1
[list.sub]
y = 2
[[list]]
[[list.deep]]
z = -1.5e3
'''


def test_every_form_of_key_has_its_position() -> None:
    """Tables, dotted and quoted keys, arrays, inline tables and arrays of tables are placed."""
    found = positions(DOCUMENT)
    assert found[("title",)] == (1, 1)
    assert found[("server",)] == (2, 2)
    assert found[("server", "listen")] == (3, 1)
    assert found[("server", "listen", 1)] == (5, 3)
    assert found[("server", "quoted key", "inner")] == (7, 14)
    assert found[("server", "inline", "b", "c", 0, "d")] == (12, 29)
    assert found[("server", "inline", "e f")] == (12, 40)
    assert found[("models", "a.b", "ttl")] == (14, 1)
    assert found[("models", "c")] == (15, 12)
    assert found[("list", 0, "sub", "y")] == (19, 1)
    assert found[("list", 1)] == (20, 3)
    assert found[("list", 1, "deep", 0, "z")] == (22, 1)
    assert set(found) == set(paths(tomllib.loads(DOCUMENT)))


def test_line_ends_of_windows_count_once() -> None:
    """CRLF files have the positions of LF files."""
    assert positions(DOCUMENT.replace("\n", "\r\n")) == positions(DOCUMENT)


def test_columns_are_characters() -> None:
    """A character outside ASCII is one column."""
    assert positions("x = { 'ключ' = 1, b = 2 }")[("x", "b")] == (1, 19)


def test_the_nearest_known_place_stands_in() -> None:
    """A path that is not in the document gets the position of what contains it."""
    found = positions("[a]\nb = 1\n")
    assert nearest(found, ("a", "b", 3)) == (2, 1)
    assert nearest(found, ("a", "missing")) == (1, 2)
    assert nearest(found, ("missing",)) == (1, 1)


def paths(value: Any, base: Path = ()) -> list[Path]:
    """Every path of a document as tomllib reads it."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    found: list[Path] = []
    for name, inner in items:
        found += [(*base, name), *paths(inner, (*base, name))]
    return found


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAMES = st.one_of(st.from_regex(r"[A-Za-z0-9_-]{1,6}", fullmatch=True), TEXT)
SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**60), 2**60),
    st.floats(),
    TEXT,
    st.dates(),
    st.datetimes(),
    st.times(),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(NAMES, VALUES, max_size=5), st.booleans())
def test_documents_written_by_a_library_are_covered(document: Any, multiline: bool) -> None:
    """The keys that are found are exactly those that tomllib reads."""
    text = tomli_w.dumps(document, multiline_strings=multiline)
    assert set(positions(text)) == set(paths(tomllib.loads(text)))


@st.composite
def handwritten(draw: st.DrawFn) -> str:
    """A document in the forms that the library does not write."""
    blank = st.sampled_from(["", " ", "\t "])
    gap = st.sampled_from(["", " ", "\n", ' # c ] } "\n', "\r\n\t"])
    scalar = st.sampled_from(
        [
            "1",
            "-inf",
            "0x1F",
            "'a]'",
            '"b\\"}"',
            '"""m\n"" ]\\\n  x"""',
            "'''q'\n''#'''",
            "07:32:00",
        ]
    )

    def key_of(index: int) -> str:
        form = draw(
            st.sampled_from(["k{}", '"q {}"', "'s.{}'", '"\\u00e4{}"', "k{}.d", 'k{} . "e"'])
        )
        return form.format(index)

    def value(depth: int) -> str:
        kind = draw(st.sampled_from(["scalar", "array", "table"] if depth else ["scalar"]))
        if kind == "scalar":
            return draw(scalar)
        count = draw(st.integers(0, 3))
        if kind == "array":
            items = [f"{draw(gap)}{value(depth - 1)}{draw(gap)}" for _ in range(count)]
            return (
                f"[{','.join(items)}{draw(st.sampled_from(['', ','])) if items else ''}{draw(gap)}]"
            )
        pairs = [f"{draw(blank)}{pair(index, depth - 1)}{draw(blank)}" for index in range(count)]
        return "{" + ",".join(pairs) + "}"

    def pair(index: int, depth: int) -> str:
        return f"{key_of(index)}{draw(blank)}={draw(blank)}{value(depth)}"

    def body() -> list[str]:
        return [pair(index, 2) + draw(blank) for index in range(draw(st.integers(0, 3)))]

    lines = body()
    for table in range(draw(st.integers(0, 4))):
        name = draw(st.sampled_from(["t{}", "t{}.x", '"t" . "{}"', "arr.in{}"])).format(table)
        header = draw(st.sampled_from([f"[{name}]", f"[ {name} ] # [c]", "[[arr]]", "[[ o . p ]]"]))
        lines += [header, *body()]
    end = draw(st.sampled_from(["\n", "\r\n"]))
    return end.join(lines) + draw(st.sampled_from(["", end]))


@given(handwritten())
def test_documents_written_by_hand_are_covered(text: str) -> None:
    """Blanks, comments, dotted keys and arrays of tables in any mixture lose no key."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return  # a header met twice
    assert set(positions(text)) == set(paths(document)), json.dumps(text)


@given(handwritten())
def test_a_position_is_where_the_key_is_written(text: str) -> None:
    """At the position of a bare key stands that key."""
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    lines = text.replace("\r\n", "\n").split("\n")
    for path, (line, column) in positions(text).items():
        name = path[-1]
        if isinstance(name, str) and name.isalnum() and name.isascii():
            assert lines[line - 1][column - 1 :].lstrip("\"'").startswith(name)
