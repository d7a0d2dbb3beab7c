"""How TOML documents are laid over each other: tables merge deep, everything else replaces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Document = Mapping[str, Any]


def overlay(base: Document, top: Document) -> dict[str, Any]:
    """`top` over `base`; neither is changed."""
    out = dict(base)
    for name, value in top.items():
        below = out.get(name)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            value = overlay(below, value)
        out[name] = value
    return out


def overlay_all(documents: Iterable[Document]) -> dict[str, Any]:
    """The documents in order, later over earlier."""
    out: dict[str, Any] = {}
    for document in documents:
        out = overlay(out, document)
    return out
