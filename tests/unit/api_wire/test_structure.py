"""Fields that say what an answer has to look like."""

from __future__ import annotations

from typing import Any

import pytest

from omlxd.api.wire.structure import from_format
from omlxd.errors import RequestInvalid
from omlxd.ipc.messages import Constraint

SCHEMA = {"type": "object"}


@pytest.mark.parametrize("wanted", [None, {}, {"type": "text"}])
def test_plain_text_is_no_constraint(wanted: Any) -> None:
    """Saying nothing and saying text are the same."""
    assert from_format(wanted, "response_format") is None


@pytest.mark.parametrize(
    ("wanted", "place"),
    [
        ({"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}, "json_schema."),
        ({"type": "json_schema", "name": "n", "schema": SCHEMA}, ""),
    ],
)
def test_the_schema_stands_at_either_level(wanted: Any, place: str) -> None:
    """As in response_format and as in text.format; the constraint knows where."""
    assert from_format(wanted, "format") == Constraint(
        kind="json_schema", value=SCHEMA, param=f"format.{place}schema"
    )


def test_any_json_object() -> None:
    """It has no schema."""
    assert from_format({"type": "json_object"}, "f") == Constraint(kind="json_object", param="f")
    assert from_format({"type": "json_object", "schema": None}, "f") == Constraint(
        kind="json_object", param="f"
    )


def test_a_json_object_with_a_schema() -> None:
    """Some clients send it so: the schema is kept, not dropped."""
    assert from_format({"type": "json_object", "schema": SCHEMA}, "f") == Constraint(
        kind="json_schema", value=SCHEMA, param="f.schema"
    )


@pytest.mark.parametrize(
    ("wanted", "param"),
    [
        ("json", "f"),
        ({"type": "xml"}, "f.type"),
        ({"type": "json_schema"}, "f.schema"),
        ({"type": "json_object", "schema": 3}, "f.schema"),
        ({"type": "json_schema", "json_schema": {"schema": 3}}, "f.json_schema.schema"),
    ],
)
def test_what_cannot_be_read_is_refused_at_its_place(wanted: Any, param: str) -> None:
    """The parameter is named."""
    with pytest.raises(RequestInvalid) as caught:
        from_format(wanted, "f")
    assert caught.value.param == param
