"""A `Control` that a test moves by hand; followers see every move."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import AsyncIterator
from typing import Any, Literal

import msgspec

from omlxd import __version__
from omlxd.control.wire import (
    Accepted,
    ConfigStatus,
    ConfigView,
    Event,
    MemoryStatus,
    ModelStatus,
    PlanResult,
    RequestStatus,
    SettingsPatch,
    Status,
)
from omlxd.errors import Conflict, ModelNotFound, OmlxError, SpecInvalid
from omlxd.spec.report import Change, OriginValue, Problem
from tests.fakes.fake_cache import FakeCache

TIME = "2026-01-02T03:04:05Z"


def a_model(model_id: str = "org/Alpha", **fields: Any) -> ModelStatus:
    given: dict[str, Any] = {"kind": "llm", "aliases": [], "phase": "absent", "pin": False}
    return ModelStatus(id=model_id, **(given | fields))


def a_status(*models: ModelStatus, **fields: Any) -> Status:
    given: dict[str, Any] = {
        "version": __version__,
        "pid": 4242,
        "uptime_s": 12.3,
        "generation": 3,
        "observed_generation": 3,
        "config": ConfigStatus("/home/you/.omlx/omlx.toml", True, []),
        "listen": ["127.0.0.1:8000"],
        "memory": MemoryStatus(limit_bytes=8 << 30, footprint_bytes=1 << 30),
        "conditions": [],
        "models": list(models),
    }
    return Status(**(given | fields))


class FakeControl:
    """Holds one status, a ring of events and what was written; a write raises `refusal` if set.

    A candidate file is valid when it is TOML; each top-level table in it counts as one change.
    """

    def __init__(self, *models: ModelStatus, **fields: Any) -> None:
        self.cache = FakeCache()
        self.current = a_status(*models, **fields)
        self.ring: list[Event] = []
        self.running: list[RequestStatus] = []
        self.view = ConfigView("/home/you/.omlx/omlx.toml", [], [OriginValue("server.listen", "x")])
        self.patches: list[SettingsPatch] = []
        self.refusal: OmlxError | None = None
        self.lags = False  # what is accepted is not yet in force
        self.followers: set[asyncio.Queue[Any]] = set()
        self.followed = asyncio.Event()  # somebody follows
        self.unfollowed = asyncio.Event()  # somebody has ceased to

    # -------------------------------------------------------------- moves

    def set_status(self, **fields: Any) -> None:
        self.current = msgspec.structs.replace(self.current, **fields)
        self._publish(self.current)

    def set_model(self, model_id: str, **fields: Any) -> None:
        models = [
            msgspec.structs.replace(m, **fields) if m.id == model_id else m
            for m in self.current.models
        ]
        self.set_status(models=models)

    def emit(
        self,
        reason: str,
        message: str,
        *,
        kind: Literal["Normal", "Warning"] = "Normal",
        model: str = "",
    ) -> Event:
        seq = self.ring[-1].seq + 1 if self.ring else 1
        event = Event(seq=seq, time=TIME, type=kind, reason=reason, message=message, model=model)
        self.ring.append(event)
        self._publish(event)
        return event

    # -------------------------------------------------------------- the port

    def status(self) -> Status:
        return self.current

    def requests(self) -> list[RequestStatus]:
        return self.running

    def config_view(self) -> ConfigView:
        return self.view

    def events(self) -> list[Event]:
        return list(self.ring)

    async def follow_events(self) -> AsyncIterator[Event]:
        async for item in self._follow():
            if isinstance(item, Event):
                yield item

    async def follow_status(self) -> AsyncIterator[Status]:
        async for item in self._follow(self.current):
            if isinstance(item, Status):
                yield item

    def metrics(self) -> bytes:
        return b"omlxd_config_generation 3.0\n"

    async def reload(self) -> Accepted:
        self._check()
        return self._accept()

    async def patch_settings(self, patch: SettingsPatch) -> Accepted:
        self._check()
        self.patches.append(patch)
        if "pin" in patch.set:
            self.set_model(patch.model, pin=patch.set["pin"])
        return self._accept()

    async def load(self, model: str) -> Accepted:
        self._check()
        self._known(model)
        self.set_model(model, phase="loading")
        return Accepted(self.current.generation, True)

    async def unload(self, model: str) -> Accepted:
        self._check()
        if self._known(model).pin:
            raise Conflict(f"{model} is pinned by omlx.toml; unpin it first")
        self.set_model(model, phase="stopping")
        return Accepted(self.current.generation, True)

    async def plan(self, text: str, file: str) -> PlanResult:
        try:
            tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            return PlanResult(False, [Problem(file, 1, 1, "", str(error), "write TOML")], [])
        changes = [Change(name, None, value, "live") for name, value in tables.items()]
        return PlanResult(True, [], changes, [f"{name} is new" for name in tables])

    # -------------------------------------------------------------- inside

    def _check(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    def _accept(self) -> Accepted:
        generation = self.current.generation + 1
        observed = self.current.observed_generation if self.lags else generation
        self.set_status(generation=generation, observed_generation=observed)
        return Accepted(generation, True)

    def _known(self, model_id: str) -> ModelStatus:
        for model in self.current.models:
            if model.id == model_id:
                return model
        raise ModelNotFound(f"no model named {model_id!r}")

    def _publish(self, item: Status | Event) -> None:
        for queue in self.followers:
            queue.put_nowait(item)

    async def _follow(self, *first: Any) -> AsyncIterator[Any]:
        queue: asyncio.Queue[Any] = asyncio.Queue()
        self.followers.add(queue)
        self.followed.set()
        try:
            for item in first:
                yield item
            while True:
                yield await queue.get()
        finally:
            self.followers.discard(queue)
            self.unfollowed.set()


def invalid(file: str) -> SpecInvalid:
    """What a daemon raises for a file with an unknown key on line 2."""
    problem = Problem(file, 2, 1, "tll", "unknown key tll", 'did you mean "ttl"?')
    return SpecInvalid("omlx.toml has a problem", problems=[problem])
