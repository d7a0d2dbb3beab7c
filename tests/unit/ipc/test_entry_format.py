"""The form of the cold tier's files: names and content."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlxd.ipc.entry_format import (
    BadEntry,
    is_entry,
    is_namespace,
    is_prefix,
    is_temporary,
    verified,
)
from tests.support.cold import entry_bytes, key

KEY = key(1)
WHOLE = entry_bytes(KEY, b"some keys and values")


def reason(data: bytes, of: str = KEY) -> str:
    with pytest.raises(BadEntry) as caught:
        verified(data, of, where="here")
    assert "here" in caught.value.detail
    return caught.value.reason


def test_names() -> None:
    """Hex in lower case, of the right length, under the prefix of the hash."""
    assert is_namespace("0a" * 32)
    assert is_prefix("0a")
    assert is_entry("01", f"{KEY}.safetensors")
    assert is_temporary("01", f"{KEY}.0123abcd.tmp.safetensors")


@pytest.mark.parametrize(
    ("prefix", "name"),
    [
        ("02", f"{KEY}.safetensors"),
        ("01", f"{KEY[:-1]}.safetensors"),
        ("01", f"{KEY}.safetensors\n"),
        ("01", f"{KEY}.safetensors.bak"),
        ("01", KEY),
        ("01", f"{KEY[:-1]}G.safetensors"),
    ],
)
def test_other_names_are_not_ours(prefix: str, name: str) -> None:
    """Whatever they are, they are neither entries nor temporary files."""
    assert not is_entry(prefix, name)
    assert not is_temporary(prefix, name)


@given(st.text(max_size=80))
def test_no_name_is_two_things(name: str) -> None:
    """A name is an entry, a temporary file, or not ours."""
    assert not (is_entry(name[:2], name) and is_temporary(name[:2], name))


def test_what_was_written_is_verified() -> None:
    """It says what it holds."""
    facts = verified(WHOLE, KEY, where="here")
    assert (facts.key, facts.kind, facts.tokens, facts.arrays) == (KEY, "kv", 64, 1)


def test_every_fault_has_its_reason() -> None:
    """They are counted apart, since they point at different culprits."""
    assert reason(WHOLE[:-1]) == "truncated"
    assert reason(WHOLE[:20]) == "truncated"
    assert reason(b"") == "truncated"
    assert reason(WHOLE[:-1] + b"?") == "checksum"
    assert reason(WHOLE + b"?") == "checksum"
    assert reason(WHOLE, of=key(2)) == "wrong key"
    assert reason(WHOLE.replace(b'"version"', b'"vErsion"')) == "header"


@given(st.integers(0, len(WHOLE) * 8 - 1))
def test_no_flipped_bit_passes(bit: int) -> None:
    """Wherever it is: length, header, metadata, digest or payload."""
    data = bytearray(WHOLE)
    data[bit // 8] ^= 1 << bit % 8
    assert reason(bytes(data)) in ("truncated", "header", "checksum", "wrong key")


@given(st.binary(max_size=300))
def test_garbage_is_refused_and_nothing_else(data: bytes) -> None:
    """No content makes it raise anything but BadEntry."""
    assert reason(data) in ("truncated", "header")
