"""GET /v1/models: one answer that OpenAI's and Anthropic's clients both read.

The main window figures are what is served; the architecture's own window has a name of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from omlxd.api.ports import ServedModel


def model_list(models: Iterable[ServedModel]) -> bytes:
    """Every model, each followed by its aliases."""
    data = [model_object(model, name) for model in models for name in (model.id, *model.aliases)]
    return msgspec.json.encode(
        {
            "object": "list",
            "data": data,
            "has_more": False,
            "first_id": data[0]["id"] if data else None,
            "last_id": data[-1]["id"] if data else None,
        }
    )


def model_object(model: ServedModel, name: str) -> dict[str, Any]:
    """One entry. `name` is the id or an alias; `root` is always the id."""
    return {
        "id": name,
        "object": "model",
        "type": "model",
        "created": model.created,
        "created_at": datetime.fromtimestamp(model.created, UTC).isoformat(),
        "owned_by": "omlxd",
        "display_name": name,
        "lifecycle": "active",
        "root": model.id,
        "kind": model.kind,
        "context_length": model.max_context,
        "max_model_len": model.max_context,
        "max_input_tokens": model.max_context,
        "max_context_model": model.model_context,
        "max_tokens": model.max_output_tokens,
    }


def model_entry(model: ServedModel, name: str) -> bytes:
    """The entry of a model that was found by `name`: an alias keeps its name."""
    shown = name if name in model.aliases else model.id
    return msgspec.json.encode(model_object(model, shown))
