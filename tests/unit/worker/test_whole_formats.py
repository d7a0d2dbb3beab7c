"""Formats that are nearly, but not quite, JSON or Python."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlxd.worker.tool_calls.whole_formats import WHOLE

NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True)
# The quotes of the gemma formats cannot be escaped, so no string has them.
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<>"), max_size=12)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(-1e9, 1e9) | TEXTS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(NAMES, VALUES, max_size=4)


def gemma(value: Any, quote: str) -> str:
    if isinstance(value, str):
        return quote + value + quote
    if isinstance(value, dict):
        inside = (f"{key}:{gemma(inner, quote)}" for key, inner in value.items())
        return "{" + ",".join(inside) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(gemma(inner, quote) for inner in value) + "]"
    return json.dumps(value)


def written(form: str, name: str, arguments: dict[str, Any]) -> str:
    if form == "pythonic":
        return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
    quote = {"gemma4": '<|"|>', "function_gemma": "<escape>"}[form]
    return f"call:{name}{gemma(arguments, quote)}"


@pytest.mark.parametrize("form", ["function_gemma", "gemma4", "pythonic"])
@given(first=ARGUMENTS, second=ARGUMENTS)
def test_values_come_back_as_they_were_written(
    form: str, first: dict[str, Any], second: dict[str, Any]
) -> None:
    """Every value of JSON, nested, in two calls one behind the other; then nothing is left."""
    calls = [written(form, "one", first), written(form, "two.b", second)]
    text = f"[{', '.join(calls)}]" if form == "pythonic" else "".join(calls)
    parsed = WHOLE[form](text)
    assert [(call.name, call.arguments) for call in parsed.calls] == [
        ("one", first),
        ("two.b", second),
    ]
    assert (parsed.calls[-1].end, parsed.is_open) == (len(text), False)


@pytest.mark.parametrize("form", sorted(WHOLE))
def test_text_that_ends_inside_a_call_is_open(form: str) -> None:
    """An end mark there is a part of a string, so reading goes on; one in nonsense is the end."""
    opened = {
        "function_gemma": "call:ls{path:<escape>a}",
        "gemma4": 'call:ls{path:[{a:<|"|>a}]}',
        "kimi_k3": '<|open|>call tool="ls"<|sep|><|open|>argument key="path"<|sep|>a',
        "pythonic": "[ls(path='a)]",
    }[form]
    assert WHOLE[form](opened) == ([], True)
    assert WHOLE[form]("nothing") == ([], False)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"'\x41\u00e9\U0001f600\101\q'", "Aé😀A\\q"),
        (r"'\ud83d\ude00'", "😀"),
        ("'''it's \"so\"'''", 'it\'s "so"'),
        ("'a\\\nb\nc'", "ab\nc"),
        (r"'\UFFFFFFFF\N{DOT}'", r"\UFFFFFFFF\N{DOT}"),
        ("02134", "02134"),
        ("1e999", "1e999"),
        ("+1.50", 1.5),
        ("None", None),
        ("New York", "New York"),
    ],
)
def test_strings_and_words_of_python(text: str, value: Any) -> None:
    """Escapes as in Python, and line breaks; a word that means nothing is a string."""
    [call] = WHOLE["pythonic"](f"[f(x={text})]").calls
    assert call.arguments == {"x": value}


@pytest.mark.parametrize("text", [r"[f(x='\ud83d')]", "[f(x=1+(2))]", "[f('a')]", "[f(x={1})]"])
def test_what_has_no_value_is_no_call(text: str) -> None:
    """Expressions, arguments without a name, characters that do not exist."""
    assert WHOLE["pythonic"](text) == ([], False)


def test_nesting_without_end_is_no_call() -> None:
    """However deep; the text is still there for the reader to give back."""
    for form, opened in (("pythonic", "[f(x="), ("gemma4", "call:f{x:")):
        assert WHOLE[form](opened + "[" * 100_000).calls == []
