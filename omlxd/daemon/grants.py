"""What each worker was last told it may take."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from omlxd.ipc.messages import LiveSettings
from omlxd.reconcile.grants import Grant, grants
from omlxd.reconcile.hot_shares import HotDivision, divide
from omlxd.reconcile.pressure import squeeze
from omlxd.reconcile.state import Desired, EngineObserved, ModelId


class GrantBook:
    """Kept by the controller: what is granted goes out with the live settings."""

    def __init__(self) -> None:
        self._grants: Mapping[ModelId, Grant] = {}
        self._hot = HotDivision()
        self._squeezed = 0  # bytes that memory above its limit costs the RAM for blocks

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

    def measured(self, desired: Desired, *, taken: int, held: int) -> None:
        """All processes take so much, `held` of it for blocks; the next review goes by it."""
        self._squeezed = squeeze(
            self._squeezed,
            taken=taken,
            limit=desired.memory_limit_bytes,
            budget=desired.hot_bytes,
            held=held,
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
        self._hot = divide(
            self._hot,
            budget_bytes=max(0, desired.hot_bytes - self._squeezed),
            tokens=tokens,
            now=now,
        )
        before = self._grants
        now_granted = grants(desired, held, before, hot=self._hot.shares, cold_dir=cold_dir)
        self._grants = now_granted
        return [model for model, grant in now_granted.items() if before.get(model) != grant]
