"""`[cache]` on its way from the file to the engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omlxd.daemon.catalog import Host, build_catalog, desired_state
from omlxd.models.card import ModelCard
from omlxd.reconcile.state import Desired
from omlxd.spec.model import Spec

GIB = 2**30
CARD = ModelCard(id="a", path=Path("/models/a"))


def desired(**cache: Any) -> Desired:
    document = {"memory": {"max_process_memory": "10GB"}, "cache": cache}
    spec = Spec.model_validate(document)
    return desired_state(
        build_catalog(spec, {CARD.id: CARD}, ram=32 * GIB, figures={}),
        spec,
        generation=1,
        host=Host(ram_bytes=32 * GIB, default_limit_bytes=24 * GIB),
        figures={},
        pinned_by={},
        templates={},
        cold_dir="/home/you/.omlx/cache",
    )


@pytest.mark.parametrize(("hot", "expected"), [("20%", 2 * GIB), ("3GB", 3 * GIB), ("0", 0)])
def test_hot_is_a_share_of_the_memory_limit(hot: str, expected: int) -> None:
    """Not of RAM: a smaller limit leaves less for blocks too."""
    assert desired(hot=hot).hot_bytes == expected


def test_engines_know_block_size_and_folder() -> None:
    """What only a new worker can take over is in its load settings, the rest is live."""
    engine = desired(block_tokens=128, cold_min_free="1GB").engines[CARD.id]
    assert (engine.load.block_tokens, engine.load.cold_dir) == (128, "/home/you/.omlx/cache")
    assert engine.live.cold_min_free_bytes == GIB
    assert (engine.live.hot_bytes, engine.live.cold) == (0, False)  # granted, not asked for
