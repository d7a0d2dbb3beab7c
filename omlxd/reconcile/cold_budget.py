"""What has to go from the cold tier, and which entries go: plainly the oldest.

Every store and hit makes a path's entries the newest, from tail to head, so the oldest are what
nobody asked for longest, and a tail goes before the head it hangs on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

LOW_WATERMARK = 0.95  # of the budget; down to here when it is passed, so that it is seldom passed
SPARE_FREE = 0.05  # of `cold_min_free`, freed beyond it for the same reason

EvictReason = Literal["budget", "min_free"]


@dataclass(frozen=True, slots=True)
class Excess:
    """Bytes that have to go, and for whose sake."""

    bytes: int
    reason: EvictReason


def excess(*, held: int, budget: int, free: int, min_free: int) -> Excess | None:
    """None if all is within bounds. All in bytes; `held` is what the tier has on disk."""
    over = held - int(budget * LOW_WATERMARK) if held > budget else 0
    short = min_free + int(min_free * SPARE_FREE) - free if free < min_free else 0
    if not held or max(over, short) <= 0:
        return None
    return Excess(min(held, max(over, short)), "budget" if over >= short else "min_free")


def cutoff(mtimes_ns: Sequence[int], sizes: Sequence[int], excess_bytes: int) -> int:
    """The age at which `excess_bytes` are together: all that is older goes, and of what is exactly
    as old, as much as it takes. Entries are given by two parallel sequences, at least one."""
    gone = 0
    for index in sorted(range(len(mtimes_ns)), key=mtimes_ns.__getitem__):
        gone += sizes[index]
        if gone >= excess_bytes:
            return mtimes_ns[index]
    return max(mtimes_ns)
