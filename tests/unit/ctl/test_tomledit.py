"""Values put into TOML text that people keep."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from omlxctl.textedit import Entry, NotEditable
from omlxctl.tomledit import put

ENTRIES = (
    Entry(("model",), "org/Alpha"),
    Entry(("window",), 65536),
    Entry(("providers", "omlxd", "base_url"), "http://127.0.0.1:8000/v1"),
)
WRITTEN = """model = "org/Alpha"
window = 65536

[providers.omlxd]
base_url = "http://127.0.0.1:8000/v1"
"""
NAMES = st.sampled_from(["model", "window", "providers", "omlxd", "base_url", "other", "é x"])
DOCUMENTS: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.dictionaries(NAMES, st.booleans() | st.integers(-9, 9) | st.text('a[]="\n#', max_size=6)),
    lambda inner: st.dictionaries(NAMES, inner | st.integers(0, 9) | st.lists(inner, max_size=2)),
    max_leaves=6,
)


def merged(document: dict[str, Any]) -> dict[str, Any]:
    """What the entries must lead to; TypeError where something else is in the way."""
    providers = document.get("providers", {})
    own = {"base_url": ENTRIES[2].value}
    return document | {
        "model": ENTRIES[0].value,
        "window": ENTRIES[1].value,
        "providers": providers | {"omlxd": providers.get("omlxd", {}) | own},
    }


@given(DOCUMENTS)
def test_the_text_says_what_was_meant_or_stays(document: dict[str, Any]) -> None:
    """Whatever is in the file, all else in it means what it meant; if not, it is refused."""
    text = tomli_w.dumps(document)
    try:
        new = put(text, ENTRIES)
    except NotEditable:
        return
    assert tomllib.loads(new) == merged(document)
    assert put(new, ENTRIES) == new


def test_an_empty_file_takes_all() -> None:
    """Keys of the file come first, then the table."""
    assert put("", ENTRIES) == WRITTEN


def test_the_rest_stays_byte_for_byte() -> None:
    """Comments, spacing and other tables stay; own keys are changed where they are."""
    text = (
        "# mine\r\n"
        'approval_policy  =  "never"   # careful\r\n'
        "model = 'old' # why\r\n"
        "\r\n"
        "[ providers . omlxd ] # ours\r\n"
        'name = "n"\r\n'
        "\r\n"
        "[tools]\r\n"
        "list = [\r\n  1,\r\n]"
    )
    assert put(text, ENTRIES) == (
        "# mine\r\n"
        'approval_policy  =  "never"   # careful\r\n'
        'model = "org/Alpha" # why\r\n'
        "window = 65536\r\n"
        "\r\n"
        "[ providers . omlxd ] # ours\r\n"
        'name = "n"\r\n'
        'base_url = "http://127.0.0.1:8000/v1"\r\n'
        "\r\n"
        "[tools]\r\n"
        "list = [\r\n  1,\r\n]"
    )


def test_keys_go_before_the_first_table() -> None:
    """A file that begins with a table gets its keys above it, and the new table below."""
    assert put("[tools]\na = 1", ENTRIES) == (
        'model = "org/Alpha"\nwindow = 65536\n\n[tools]\na = 1\n\n[providers.omlxd]\n'
        'base_url = "http://127.0.0.1:8000/v1"\n'
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("model = ", "is not valid TOML"),
        ("providers = 1", "has something else where providers must be a table"),
        ('providers = { omlxd = { name = "n" } }', "cannot be put into"),
        ('"model" = "old"', "model cannot be put into"),
    ],
)
def test_what_cannot_be_edited_is_refused(text: str, reason: str) -> None:
    """A text in which the value would not land where it is meant is not touched."""
    with pytest.raises(NotEditable, match=reason):
        put(text, ENTRIES)
