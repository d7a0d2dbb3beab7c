"""The conditions in force, with the times at which they last changed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from omlxd.daemon.catalog import Entry
from omlxd.daemon.cold_keeper import ColdView
from omlxd.daemon.controller import Controller
from omlxd.daemon.status import loaded_facts, rfc3339
from omlxd.ipc.messages import CacheReport
from omlxd.observe import log
from omlxd.reconcile.conditions import (
    Condition,
    daemon_conditions,
    engine_conditions,
    servable,
    transition,
)
from omlxd.reconcile.state import ModelId
from omlxd.spec.report import Problem

_QUIET = frozenset({"Reconciled", "UpToDate", "Admitted"})  # they flicker; status shows them


class ConditionBook:
    """Derived anew after every pass; a change of status is logged once."""

    def __init__(self) -> None:
        self.daemon: tuple[Condition, ...] = ()
        self._models: dict[ModelId, tuple[Condition, ...]] = {}

    def of_model(self, model: ModelId) -> tuple[Condition, ...]:
        return self._models.get(model, ())

    def update(
        self, controller: Controller, catalog: Mapping[ModelId, Entry], extra: Iterable[Condition]
    ) -> None:
        """`extra`: what the daemon's own shells say of files, folders and listeners."""
        now = rfc3339(time.time())
        observed, plan = controller.observed(), controller.last_plan
        fresh = {}
        for model, entry in catalog.items():
            conditions: tuple[Condition, ...] = (servable(entry.servable, entry.reason),)
            if model in controller.desired.engines:
                conditions += engine_conditions(model, controller.desired, observed, plan)
                conditions += loaded_facts(controller.facts.get(model))
                conditions += cold_of_engine(
                    controller.cache.reports.get(model), granted=controller.grants.of(model).cold
                )
            fresh[model] = self._moved(self.of_model(model), conditions, now, model)
        self._models = fresh
        of_daemon = (*extra, *daemon_conditions(controller.desired, observed, plan))
        self.daemon = self._moved(self.daemon, of_daemon, now, "")

    def _moved(
        self, old: tuple[Condition, ...], new: tuple[Condition, ...], now: str, model: str
    ) -> tuple[Condition, ...]:
        before = {condition.type: condition.status for condition in old}
        moved = transition(old, new, now)
        for c in moved:
            if c.type in before and before[c.type] != c.status and c.type not in _QUIET:
                fields = {"model": model} if model else {}
                log.get().info(
                    "condition",
                    condition=c.type,
                    status=c.status,
                    reason=c.reason,
                    message=c.message,
                    **fields,
                )
        return moved


def config_valid(problems: Iterable[Problem], *, has_spec: bool) -> Condition:
    """Whether the files on disk are what is in force."""
    found = list(problems)
    if not found:
        return Condition("ConfigValid", "True", "InForce")
    first = found[0]
    goes_on = "the last good configuration stays in force" if has_spec else "nothing is served"
    message = f"{first.file}:{first.line}:{first.column}: {first.key}: {first.message}; {goes_on}"
    return Condition("ConfigValid", "False", "ProblemsFound", message)


def listening(failures: Mapping[str, str]) -> Condition:
    """Whether every address of `server.listen` is bound."""
    if not failures:
        return Condition("Listening", "True", "AllBound")
    listed = ", ".join(f"{address}: {why}" for address, why in failures.items())
    return Condition("Listening", "False", "AddressNotBound", f"{listed}; tried again by itself")


def listen_drift(held: Iterable[str], differs: str) -> tuple[Condition, ...]:
    """Whether launchd holds other addresses than `server.listen` names; nothing without launchd."""
    if not tuple(held):
        return ()
    if not differs:
        return (Condition("ListenDrift", "False", "AllHeld"),)
    message = f"{differs}; bring launchd up to date with: omlxctl service install"
    return (Condition("ListenDrift", "True", "PlistOutOfDate", message),)


def folders_found(problems: Iterable[str]) -> Condition:
    """Whether every model folder could be read."""
    listed = "; ".join(problems)
    if not listed:
        return Condition("ModelFolders", "True", "AllRead")
    return Condition("ModelFolders", "False", "FolderNotRead", listed)


def aliases(catalog: Mapping[ModelId, Entry]) -> Condition:
    """Whether every alias leads to the model that asks for it."""
    taken = [
        f"{alias}, an alias of {entry.id}, is the name of another model, which is the one served"
        for entry in catalog.values()
        for alias in sorted(entry.taken)
    ]
    if not taken:
        return Condition("Aliases", "True", "AllDistinct")
    return Condition("Aliases", "False", "AliasTaken", "; ".join(taken))


def fallback_model(name: str, entry: Entry | None) -> tuple[Condition, ...]:
    """Whether `server.fallback_model` can serve; nothing if none is asked for."""
    if not name:
        return ()
    if entry is None:
        message = f"server.fallback_model = {name!r} is no model; omlxctl models lists what is"
        return (Condition("FallbackModel", "False", "NotFound", message),)
    if not entry.servable:
        message = f"{entry.id} cannot be served: {entry.reason}"
        return (Condition("FallbackModel", "False", "NotServable", message),)
    return (Condition("FallbackModel", "True", "Found", entry.id),)


def cold_tier(view: ColdView, degraded: Mapping[ModelId, str]) -> Condition:
    """Whether blocks are kept on disk, by every engine that may."""
    if view.reason in ("TurnedOff", "Starting"):
        return Condition("ColdTier", "Unknown", view.reason, view.message)
    if view.reason != "Ready":
        return Condition("ColdTier", "False", view.reason, view.message)
    if degraded:
        listed = "; ".join(f"{model}: {why}" for model, why in sorted(degraded.items()))
        return Condition("ColdTier", "False", "Degraded", listed)
    return Condition("ColdTier", "True", "Ready", view.message)


def cold_of_engine(report: CacheReport | None, *, granted: bool) -> tuple[Condition, ...]:
    """The same of one engine; nothing before its cache has reported."""
    if report is None:
        return ()
    if report.degraded:
        return (Condition("ColdTier", "False", "Degraded", report.degraded),)
    if granted:
        return (Condition("ColdTier", "True", "Ready"),)
    return (Condition("ColdTier", "Unknown", "NotGranted", "the daemon's own ColdTier says why"),)
