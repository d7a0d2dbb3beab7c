"""KEY=VALUE of `omlxctl set`."""

from __future__ import annotations

import json
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from omlxctl.assignments import parse_assignments, parse_key, parse_value

_SAFE_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
_SCALARS = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _SAFE_TEXT
)
_KEYS = st.from_regex(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)?", fullmatch=True)


@given(values=st.dictionaries(_KEYS, _SCALARS | st.lists(_SCALARS), min_size=1))
def test_what_toml_writes_is_read_back(values: dict[str, Any]) -> None:
    """Every TOML value given as KEY=VALUE arrives as it was, with its type."""
    texts = [f"{key}={_toml(value)}" for key, value in values.items()]
    parsed = parse_assignments(texts)
    assert parsed == values
    assert [type(parsed[key]) for key in values] == [type(value) for value in values.values()]


def _toml(value: Any) -> str:
    return tomli_w.dumps({"v": value}).removeprefix("v = ").rstrip("\n")


@given(text=st.text())
def test_any_text_is_a_value_or_a_sentence(text: str) -> None:
    """No text makes anything but a value that JSON carries, or a ValueError."""
    try:
        value = parse_value(text)
    except ValueError:
        return
    json.dumps(value, allow_nan=False)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5m", "5m"),
        ("64GB", "64GB"),
        ("80%", "80%"),
        ("llm", "llm"),
        ("~/models/x", "~/models/x"),
        ("true", True),
        ("8", 8),
        ("0.7", 0.7),
        ('"8"', "8"),
        ('["a", "b"]', ["a", "b"]),
        ("{enable_thinking = false}", {"enable_thinking": False}),
        ("nan", "nan"),
        ("inf", "inf"),
        ("2026-01-02", "2026-01-02"),
        ("a=b", "a=b"),
    ],
)
def test_a_bare_word_is_a_string(text: str, value: object) -> None:
    """TOML where it is TOML, else the word itself; what JSON cannot carry is a word."""
    parsed = parse_value(text)
    assert (parsed, type(parsed)) == (value, type(value))


@pytest.mark.parametrize("text", ["", '"a', "[1, 2", "{a = 1", "'x", "1\nb = 2", "[nan]"])
def test_what_was_meant_as_toml_is_not_a_word(text: str) -> None:
    """A missing value, a broken string, list or table, and a second key are errors."""
    with pytest.raises(ValueError, match=r"missing|TOML value"):
        parse_value(text)


@pytest.mark.parametrize("text", ["ttl", "=5", "a b=1", "a.=1", ".a=1", "a..b=1", '"a"=1'])
def test_what_has_no_key_is_an_error(text: str) -> None:
    """An assignment needs a key of bare words joined by dots."""
    with pytest.raises(ValueError, match=r"KEY=VALUE|is not a key"):
        parse_assignments([text])


def test_a_key_is_given_once() -> None:
    """The same key twice is an error that names it."""
    with pytest.raises(ValueError, match="ttl is given twice"):
        parse_assignments(["ttl=5m", "ttl=6m"])


def test_a_dotted_key_stays_whole() -> None:
    """A key of a table under the model is one dotted name."""
    assert parse_key("sampling.top_p") == "sampling.top_p"
