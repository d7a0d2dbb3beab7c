"""JSON Schema of omlx.toml, for editors that complete and check TOML files."""

from __future__ import annotations

from typing import Any, Final

from omlxd.spec.model import File

_ID: Final = "https://json-schema.org/draft/2020-12/schema"
_OURS: Final = ("reload", "built", "also", "secret")


def json_schema() -> dict[str, Any]:
    """Draft 2020-12. Keys that this version does not support yet say so in their description."""
    schema = _tidied(File.model_json_schema(mode="serialization"))
    assert isinstance(schema, dict)
    return {"$schema": _ID, **schema, "title": "omlx.toml"}


def _tidied(node: Any) -> Any:
    """Without pydantic's titles, without null (TOML has none), our marks as description."""
    if isinstance(node, list):
        return [_tidied(item) for item in node]
    if not isinstance(node, dict):
        return node
    out = {name: _tidied(value) for name, value in node.items() if name not in _OURS}
    if "$ref" in node:
        out.pop("default", None)  # the keys of the table have theirs
    if "reload" in node:
        out["description"] = _described(node)
        out.pop("title", None)
        if node.get("default") is None:
            out.pop("default", None)
    options = [option for option in out.get("anyOf", ()) if option != {"type": "null"}]
    if len(options) == 1:
        del out["anyOf"]
        out |= options[0]
    elif options:
        out["anyOf"] = options
    return out


def _described(node: dict[str, Any]) -> str:
    note = node["reload"] if node["built"] else f"{node['reload']}; not in this version"
    return f"{node['description']} ({note})"
