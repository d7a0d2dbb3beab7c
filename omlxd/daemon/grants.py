"""What each worker was last told it may take."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from omlxd.ipc.messages import LiveSettings
from omlxd.reconcile.grants import Grant, grants, tightened
from omlxd.reconcile.hot_shares import HotDivision, divide
from omlxd.reconcile.pressure import Pressure, press
from omlxd.reconcile.state import Desired, EngineObserved, ModelId


class GrantBook:
    """Kept by the controller: what is granted goes out with the live settings."""

    def __init__(self) -> None:
        self.pressure = Pressure()
        self._grants: Mapping[ModelId, Grant] = {}
        self._unpressed: Mapping[ModelId, Grant] = {}  # the same, did nothing press
        self._hot = HotDivision()

    def of(self, model: ModelId) -> Grant:
        return self._grants.get(model, Grant())

    def added_to(self, live: LiveSettings, model: ModelId) -> LiveSettings:
        """`live` with what the engine may take."""
        grant = self.of(model)
        return replace(
            live,
            memory_share_bytes=grant.memory_share_bytes,
            hot_bytes=grant.hot_bytes,
            cold=grant.cold,
        )

    def measured(self, desired: Desired, *, taken: int, held: int, now: float) -> None:
        """All processes take so much, blocks `held` of it; the next review goes by it."""
        if desired.generation == 0:
            return  # there is no limit yet
        self.pressure = press(
            self.pressure,
            taken=taken,
            held=held,
            limit=desired.memory_limit_bytes,
            wanted=sum(grant.hot_bytes for grant in self._unpressed.values()),
            now=now,
        )

    def review(
        self,
        desired: Desired,
        held: Mapping[ModelId, EngineObserved],
        *,
        tokens: Mapping[ModelId, int],
        cold_dir: str,
        now: float,
    ) -> list[ModelId]:
        """Decide anew; the engines whose grant changed.

        `tokens`: prompt tokens so far of every engine of `held` that can reuse blocks.
        """
        self._hot = divide(self._hot, budget_bytes=desired.hot_bytes, tokens=tokens, now=now)
        self._unpressed = grants(
            desired, held, self._unpressed, hot=self._hot.shares, cold_dir=cold_dir
        )
        before, room = self._grants, self.pressure.room_bytes
        now_granted = self._unpressed if room is None else tightened(self._unpressed, room)
        self._grants = now_granted
        return [model for model, grant in now_granted.items() if before.get(model) != grant]
