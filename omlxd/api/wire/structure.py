"""What an answer has to look like: the dialects' fields for it → a `Constraint`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from omlxd.errors import RequestInvalid
from omlxd.ipc.messages import Constraint

# Keys of `structured_outputs`, and after `guided_` keys of the body itself.
_GUIDES: Mapping[str, Literal["json_schema", "regex", "choice", "lark"]] = {
    "json": "json_schema",
    "regex": "regex",
    "choice": "choice",
    "grammar": "lark",
}
_FORMAT = "response_format"
_GUIDED = "structured_outputs"


def of_body(body: Mapping[str, Any]) -> Constraint | None:
    """Of an OpenAI body: `response_format`, `structured_outputs` or `guided_*`, one of them.

    Raises RequestInvalid.
    """
    found = [from_format(body.get(_FORMAT), _FORMAT)]
    nested = body.get(_GUIDED, {})
    if not isinstance(nested, Mapping):
        raise RequestInvalid(f"{_GUIDED}: send an object.", param=_GUIDED)
    for key, value in nested.items():
        if key not in _GUIDES and key != "json_object" and value not in (None, False):
            raise RequestInvalid(
                f"{_GUIDED}.{key}: is not one of {', '.join(_GUIDES)}, json_object.",
                param=f"{_GUIDED}.{key}",
            )
    if nested.get("json_object"):
        found.append(Constraint(kind="json_object", param=f"{_GUIDED}.json_object"))
    for key in _GUIDES:
        found.append(_guide(key, nested.get(key), f"{_GUIDED}.{key}"))
        found.append(_guide(key, body.get(f"guided_{key}"), f"guided_{key}"))
    wanted = [constraint for constraint in found if constraint is not None]
    if len(wanted) > 1:
        raise RequestInvalid(
            f"{wanted[1].param}: contradicts {wanted[0].param}; send one of the two.",
            param=wanted[1].param,
        )
    return wanted[0] if wanted else None


def _guide(key: str, value: Any, param: str) -> Constraint | None:
    if value is None:
        return None
    if key == "json" and isinstance(value, str):  # the schema as text
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError as error:
            raise RequestInvalid(f"{param}: is no JSON: {error}.", param=param) from None
    right = {
        "json": isinstance(value, Mapping | bool),
        "regex": isinstance(value, str),
        "choice": isinstance(value, list)
        and bool(value)
        and all(isinstance(text, str) and text for text in value),
        "grammar": isinstance(value, str),
    }
    if not right[key]:
        wanted = {"json": "a JSON schema", "choice": "a list of strings"}.get(key, "a string")
        raise RequestInvalid(f"{param}: send {wanted}.", param=param)
    return Constraint(kind=_GUIDES[key], value=value, param=param)


def from_format(wanted: Any, param: str) -> Constraint | None:
    """`text`, `json_object` or `json_schema`; the schema stands in it or in its `json_schema`.

    So it reads OpenAI's `response_format`, and `text.format` and `output_config.format`, which
    have the schema one level higher, and a `json_object` with a schema, as some clients send it.
    `strict` makes no difference: the schema is always kept.
    """
    if wanted is None:
        return None
    if not isinstance(wanted, Mapping):
        raise RequestInvalid(f"{param}: send an object with a type.", param=param)
    kind = wanted.get("type")
    if kind in (None, "text"):
        return None
    if kind == "json_object" and wanted.get("schema") is None:
        return Constraint(kind="json_object", param=param)
    if kind not in ("json_object", "json_schema"):
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
