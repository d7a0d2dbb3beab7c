"""Less RAM for KV blocks while all processes together take more than the memory limit.

Blocks can be computed or read again, so they make room before any engine goes. Engines go once
blocks have had their time and nothing came of it.
"""

from __future__ import annotations

from dataclasses import dataclass

SLACK = 0.05  # of the limit; blocks get room again only below it, so that nothing swings
PATIENCE_S = 10.0  # for blocks to go: a worker looks at its orders between steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """As of the last measurement."""

    room_bytes: int | None = None  # RAM for the blocks of all engines; None = what is configured
    held_bytes: int = 0  # by blocks
    above_since: float | None = None  # above the limit, and blocks hold no less since
    is_stuck: bool = False  # blocks do not make the room they should

    @property
    def yields_bytes(self) -> int:
        """What blocks can still give before an engine has to go."""
        return 0 if self.is_stuck else self.held_bytes


def press(
    before: Pressure, *, taken: int, held: int, limit: int, wanted: int, now: float
) -> Pressure:
    """After a new measurement: all processes take `taken` bytes, blocks `held` of them.

    `wanted` is what engines may keep blocks in where nothing presses.
    """
    over = taken - limit
    if over <= 0:
        return Pressure(room_bytes=_relax(before, -over, held, limit, wanted), held_bytes=held)
    room = max(0, held - over)
    if before.room_bytes is not None:
        room = min(room, before.room_bytes)
    since = before.above_since
    if since is None or held < before.held_bytes:
        since = now
    return Pressure(
        room_bytes=room,
        held_bytes=held,
        above_since=since,
        is_stuck=now - since >= PATIENCE_S,
    )


def _relax(before: Pressure, free: int, held: int, limit: int, wanted: int) -> int | None:
    """What blocks hold and may grow by; None once that is all they want."""
    if before.room_bytes is None:
        return None
    spare = free - int(limit * SLACK)
    room = max(before.room_bytes, held + spare) if spare > 0 else before.room_bytes
    return None if room >= wanted else room
