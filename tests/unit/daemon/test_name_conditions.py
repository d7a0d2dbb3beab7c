"""Conditions Aliases and FallbackModel of the daemon."""

from __future__ import annotations

import pytest

from omlxd.daemon.conditions import aliases, fallback_model
from omlxd.reconcile.conditions import Condition
from tests.unit.daemon.build import card, catalog

TEXT = '[models.a]\naliases = ["b", "x"]\n[models.gone]\n'


def test_an_alias_that_is_taken_is_told_with_both_models() -> None:
    """Who asked for it, and whose name it is."""
    told = aliases(catalog(TEXT, card("a"), card("b")))
    assert (told.type, told.status, told.reason) == ("Aliases", "False", "AliasTaken")
    assert told.message == (
        "b, an alias of a, is the name of another model, which is the one served"
    )
    assert aliases(catalog(TEXT, card("a"))) == Condition("Aliases", "True", "AllDistinct")


@pytest.mark.parametrize(
    ("name", "model", "status", "reason"),
    [
        ("typo", "", "False", "NotFound"),
        ("gone", "gone", "False", "NotServable"),
        ("x", "a", "True", "Found"),
    ],
)
def test_a_fallback_that_cannot_serve_is_told(
    name: str, model: str, status: str, reason: str
) -> None:
    """By the name it has in the file, or with the reason why it is not served."""
    entry = catalog(TEXT, card("a")).get(model)
    (told,) = fallback_model(name, entry)
    assert (told.type, told.status, told.reason) == ("FallbackModel", status, reason)
    assert (model or name) in told.message


def test_no_fallback_is_no_condition() -> None:
    """Nothing is said of what nobody asked for."""
    assert fallback_model("", None) == ()
