"""Reasoning that travels unseen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlxd.api.wire.sealed import seal, unseal


@given(st.text())
def test_what_was_sealed_comes_back(text: str) -> None:
    """Word for word, and the seal is never empty."""
    assert seal(text)
    assert unseal(seal(text)) == text


@pytest.mark.parametrize(
    "foreign", ["", "c3R1Yg==", "no base64!", "é", None, 7, "b21seGQvMTr//w=="]
)
def test_what_others_sealed_is_no_text(foreign: object) -> None:
    """Another server's signature, or a broken one, is not read as reasoning."""
    assert unseal(foreign) == ""
