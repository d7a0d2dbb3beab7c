"""What each engine that has a worker may take: memory in all, RAM for KV blocks, the cold tier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from omlxd.reconcile.shares import shares
from omlxd.reconcile.state import Desired, EngineObserved, ModelId


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Nothing, until it is decided."""

    memory_share_bytes: int = 0
    hot_bytes: int = 0
    cold: bool = False


def grants(
    desired: Desired,
    held: Mapping[ModelId, EngineObserved],
    before: Mapping[ModelId, Grant],
    *,
    hot: Mapping[ModelId, int],
    cold_dir: str,
) -> dict[ModelId, Grant]:
    """A grant for every engine of `held`.

    `hot` is the division of the RAM for blocks, `cold_dir` the folder that may be used now ("" =
    none). Blocks lie inside an engine's share and take at most half of what it has beside its
    estimate: the rest is for the requests that run.
    """
    told = {model: grant.memory_share_bytes for model, grant in before.items()}
    found = {}
    for model, share in shares(desired, held, told).items():
        wanted, load = hot.get(model, 0), held[model].load
        if model in desired.engines:
            room = max(0, share - desired.engines[model].estimate_bytes) // 2
        else:  # on its way out: it may keep what it has
            room = before.get(model, Grant()).hot_bytes
        found[model] = Grant(
            memory_share_bytes=share,
            hot_bytes=min(wanted, room),
            cold=load is not None and load.cold_dir == cold_dir != "",
        )
    return found


def tightened(granted: Mapping[ModelId, Grant], room: int) -> dict[ModelId, Grant]:
    """`granted` with at most `room` bytes for all blocks; nobody may take what these lose."""
    total = sum(grant.hot_bytes for grant in granted.values())
    if total <= room:
        return dict(granted)
    found = {}
    for model, grant in granted.items():
        hot = grant.hot_bytes * room // total
        share = grant.memory_share_bytes - (grant.hot_bytes - hot)
        found[model] = replace(grant, hot_bytes=hot, memory_share_bytes=share)
    return found
