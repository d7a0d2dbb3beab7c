"""Less RAM for KV blocks while the processes take more than the memory limit.

Blocks can be computed or read again, so they go before any engine does.
"""

from __future__ import annotations

SLACK = 0.05  # of the limit; blocks get room again only below it, so that nothing swings


def squeeze(before: int, *, taken: int, limit: int, budget: int, held: int) -> int:
    """Bytes to leave out of `budget`, the RAM for blocks, after a new measurement.

    `taken` is what all processes take, `held` the part of it that is blocks, `before` what was
    left out until now.
    """
    over = taken - limit
    if over > 0:
        return min(budget, max(before, budget - max(0, held - over)))
    spare = int(limit * (1 - SLACK)) - taken
    return min(budget, max(0, before - max(0, spare)))
