"""The schema of omlx.toml. Every key carries its reload class and one line for man page and editor.

Reload classes: *live* (applied to running engines), *drain* (the engine finishes what it runs,
then is replaced), *rebind* (the listener). `built=False`: refused unless left at its default.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from omlxd.units import Size, parse_duration, parse_size

Reload = Literal["live", "drain", "rebind"]
Duration = Annotated[float | None, BeforeValidator(parse_duration)]  # seconds; None = never
Amount = Annotated[Size, BeforeValidator(parse_size)]
EngineKind = Literal["llm", "vlm", "ocr", "embedding", "reranker"]


def key(default: Any, reload: Reload, doc: str, *, built: bool = True, **limits: Any) -> Any:
    """One TOML key: default, reload class, its line of documentation, numeric limits."""
    extra = {"reload": reload, "built": built}
    return Field(default, description=doc, json_schema_extra=extra, validate_default=True, **limits)


class Table(BaseModel):
    """A TOML table: unknown keys are errors, values are not changed after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)
