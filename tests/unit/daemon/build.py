"""Short ways to a spec, to cards and to the catalog of both."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omlxd.daemon.catalog import Entry, Figures, build_catalog
from omlxd.models.card import ModelCard
from omlxd.spec.model import Spec
from omlxd.spec.parse import Source, read

GIB = 2**30


def spec(text: str = "") -> Spec:
    reading = read(Source("omlx.toml", text))
    assert reading.spec is not None, reading.problems
    return reading.spec


def card(name: str, **facts: Any) -> ModelCard:
    given: dict[str, Any] = {"weights_bytes": GIB, "max_context": 4096, "fingerprint": "f1"}
    return ModelCard(id=name, path=Path("/models") / name, **(given | facts))


def catalog(
    text: str, *cards: ModelCard, figures: Mapping[str, Figures] | None = None
) -> dict[str, Entry]:
    """On a machine of 64 GiB."""
    found = {one.id: one for one in cards}
    return build_catalog(spec(text), found, ram=64 * GIB, figures=figures or {})
