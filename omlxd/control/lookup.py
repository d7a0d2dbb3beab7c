"""Which model a name means, on both sides of the control socket. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from omlxd.control.wire import ModelStatus
from omlxd.errors import ModelNotFound


def find_model(models: Sequence[ModelStatus], name: str) -> ModelStatus:
    """By id, then alias, then the last part of an id where only one model has it.

    Raises ModelNotFound, with the names there are.
    """
    for model in models:
        if model.id == name:
            return model
    for model in models:
        if name in model.aliases:
            return model
    short = [model for model in models if model.id.rpartition("/")[2] == name]
    if len(short) == 1:
        return short[0]
    if short:
        raise ModelNotFound(
            f"{name!r} may be any of {', '.join(model.id for model in short)}; use the full id"
        )
    known = ", ".join(model.id for model in models) or "none"
    raise ModelNotFound(f"no model named {name!r}; models: {known}")
