"""What an answer has to look like: the dialects' fields for it → a `Constraint`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omlxd.errors import RequestInvalid
from omlxd.ipc.messages import Constraint


def from_format(wanted: Any, param: str) -> Constraint | None:
    """`text`, `json_object` or `json_schema`; the schema stands in it or in its `json_schema`.

    So it reads OpenAI's `response_format`, and `text.format` and `output_config.format`, which
    have the schema one level higher. `strict` makes no difference: the schema is always kept.
    """
    if wanted is None:
        return None
    if not isinstance(wanted, Mapping):
        raise RequestInvalid(f"{param}: send an object with a type.", param=param)
    kind = wanted.get("type")
    if kind in (None, "text"):
        return None
    if kind == "json_object":
        return Constraint(kind="json_object", param=param)
    if kind != "json_schema":
        raise RequestInvalid(
            f"{param}.type: {kind!r} is not one of text, json_object, json_schema.",
            param=f"{param}.type",
        )
    nested = wanted.get("json_schema")
    place = f"{param}.json_schema.schema" if isinstance(nested, Mapping) else f"{param}.schema"
    schema = (nested if isinstance(nested, Mapping) else wanted).get("schema")
    if not isinstance(schema, Mapping | bool):  # true is a schema too
        raise RequestInvalid(f"{place}: send a JSON schema, an object.", param=place)
    return Constraint(kind="json_schema", value=schema, param=place)
