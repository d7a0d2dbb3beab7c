"""Names of others on a terminal."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlxctl.text import safe, width


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Qwen3 8B", "Qwen3 8B"),
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("a\x9b1mb\x7f", "a\\x9b1mb\\x7f"),
        ("left\u202eright", "left\\u202eright"),
        ("half\ud800", "half\\ud800"),
        ("模型 ü", "模型 ü"),
    ],
)
def test_what_is_not_printable_is_an_escape(text: str, shown: str) -> None:
    """Controls, marks of direction and half characters are shown; letters stay letters."""
    assert safe(text) == shown


def test_some_layout_may_stay() -> None:
    """A caller that prints several lines keeps their ends."""
    assert safe("a\nb\tc\x1b", keep="\n\t") == "a\nb\tc\\x1b"


@given(st.text(st.characters(), max_size=20))
def test_it_always_prints(text: str) -> None:
    """Whatever comes, what is shown is printable and is UTF-8."""
    assert safe(text).isprintable()
    safe(text).encode()


def test_wide_characters_take_two_columns() -> None:
    """Widths are those of a terminal."""
    assert [width(text) for text in ("abc", "模型", "ü", "e\u0301")] == [3, 4, 1, 1]


def test_plain_names_need_no_rich() -> None:
    """The library that knows widths is not imported for ASCII."""
    code = (
        "import sys; from omlxctl.render import table; table(['A'], [['b']]); "
        "sys.exit('rich' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
