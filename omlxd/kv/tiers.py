"""The parts of a cache that its readers look into."""

from __future__ import annotations

from dataclasses import dataclass

from omlxd.kv.cold import ColdTier
from omlxd.kv.hot import HotTier
from omlxd.kv.index import Index
from omlxd.kv.types import Layout


@dataclass(frozen=True, slots=True)
class Tiers:
    layout: Layout
    index: Index
    hot: HotTier
    cold: ColdTier
