"""Model names in paths."""

from __future__ import annotations

from urllib.parse import unquote

from hypothesis import given
from hypothesis import strategies as st

from omlxctl.names import model_path


def test_a_slash_is_encoded() -> None:
    """An id with a slash stays one segment, so it cannot be taken for an action."""
    assert model_path("org/Alpha") == "/v1/models/org%2FAlpha"
    assert model_path("org/Alpha", "load") == "/v1/models/org%2FAlpha/load"


@given(name=st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_name_is_one_segment(name: str) -> None:
    """Whatever the name, it is one segment of the path and comes back whole."""
    _, _, rest = model_path(name).partition("/v1/models/")
    assert "/" not in rest
    assert rest.isascii()
    assert unquote(rest) == name
