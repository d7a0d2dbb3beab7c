"""The daemon: every shell put together, brought up, kept going and taken down again."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from omlxd.api.app import create_app
from omlxd.api.ports import Readiness, ServedModel, ServerSettings
from omlxd.control.app import create_control_app
from omlxd.control.wire import PlanResult
from omlxd.daemon.catalog import Entry, Host, build_catalog, desired_state, served_model
from omlxd.daemon.cold_keeper import ColdSettings
from omlxd.daemon.cold_tier import ColdTier
from omlxd.daemon.conditions import (
    ConditionBook,
    aliases,
    cold_tier,
    config_valid,
    fallback_model,
    folders_found,
    listen_drift,
    listening,
)
from omlxd.daemon.config import ConfigStore, Outcome
from omlxd.daemon.controller import Controller
from omlxd.daemon.figures import FiguresStore
from omlxd.daemon.fleet import STOP_GRACE_S, Fleet
from omlxd.daemon.gateway import RequestGateway, Ticket
from omlxd.daemon.held import HeldSockets
from omlxd.daemon.journal import Journal
from omlxd.daemon.listeners import Listener, Listeners, bind_unix, serve
from omlxd.daemon.memory import default_limit, ram_bytes
from omlxd.daemon.namespaces import NamespaceNames
from omlxd.daemon.probe import probe_workers
from omlxd.daemon.scanner import Scanner
from omlxd.daemon.service import ControlService
from omlxd.daemon.serving import consequences, server_settings
from omlxd.daemon.supervisor import Supervisor
from omlxd.daemon.tool_servers import ToolService
from omlxd.daemon.watchdog import Watchdog
from omlxd.daemon.watcher import FileWatcher, ModelFolderWatcher
from omlxd.errors import ModelNotFound, ModelUnavailable
from omlxd.ipc.messages import Loaded
from omlxd.models.inputs import resolve_path, scan_inputs
from omlxd.models.names import resolve
from omlxd.observe import log
from omlxd.observe.events import EventRing
from omlxd.observe.metrics import Gauges, Metrics, ModelGauges
from omlxd.reconcile.conditions import Condition
from omlxd.reconcile.state import ModelId
from omlxd.spec.diff import diff
from omlxd.spec.model import Spec

LAST_WORDS_S = 2.0  # for responses that were failed at shutdown to reach their clients


class Daemon:
    """Owns the shells, the catalog of models, and the order in which things start and stop."""

    def __init__(self, home: Path, config_path: Path, *, held: HeldSockets | None = None) -> None:
        self.home = home
        self.journal = Journal(EventRing(home / "state" / "events.jsonl"))
        self.config = ConfigStore(home, config_path)
        self.catalog: dict[ModelId, Entry] = {}
        self.departing: dict[ModelId, Entry] = {}  # no longer served, still with a worker
        self.conditions = ConditionBook()
        self.metrics = Metrics()
        self.controller = Controller(
            self.journal, on_change=self._changed, on_measured=self._measured
        )
        self.cold = ColdTier(self.controller.cache, self.journal, on_change=self._cold_looked)
        self.controller.cache.on_written = self.cold.wrote
        self.tools = ToolService(home)
        self.gateway = RequestGateway(self, self.metrics, tools=self.tools.pool)
        self.service = ControlService(self)
        self.scanner = Scanner(self.follow)
        self.listeners = Listeners(
            create_app(self.gateway), on_change=self.controller.wake, held=held
        )
        self.tools.pool.on_change = self.controller.wake
        self.tools.pool.on_call = self.metrics.tool_called
        self.controller.gateway = self.gateway
        self.controller.fleet = Fleet(self.controller, Supervisor)
        ram = ram_bytes()
        self._host = Host(ram_bytes=ram, default_limit_bytes=default_limit(ram))
        self.names = NamespaceNames(home / "state" / "namespaces.json")
        self._figures = FiguresStore(home / "state" / "figures.json")
        self._settings = ServerSettings()
        self._files = asyncio.Lock()  # one reading or writing of the files at a time
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    # -------------------------------------------------------------- life

    async def run(self) -> int:
        """Serve until asked to stop; returns the exit code."""
        path = self.home / "run" / "omlxd.sock"
        try:
            sock = bind_unix(path)
        except OSError as error:
            log.get().critical("control_socket", path=str(path), error=str(error))
            return 1
        self._took(await asyncio.to_thread(self.config.start))
        control = await serve(create_control_app(self.service), sock, str(path))
        self._start("controller", self.controller.run())
        self._start("listeners", self.listeners.run())
        self._start("scanner", self.scanner.run())
        self._start("cold tier", self.cold.run())
        self._start("worker probe", probe_workers(self.controller, Watchdog(self.controller)))
        files = FileWatcher(
            self.home, self.config.path, self.ask_reload, others=lambda: self.config.referenced
        )
        self._start("file watcher", files.run())
        watcher = ModelFolderWatcher(lambda: self.scanner.folders, self.scanner.look_again)
        self._start("model folder watcher", watcher.run())
        await self._stop.wait()
        await self._shut_down(control)
        path.unlink(missing_ok=True)
        return 0

    def ask_stop(self) -> None:
        """SIGTERM or SIGINT: the first drains, the second ends at once."""
        if self._stop.is_set():
            log.get().warning("shutdown", forced=True)
            self._die(0)
        self._stop.set()

    @property
    def is_stopping(self) -> bool:
        return self._stop.is_set()

    def ask_reload(self) -> None:
        """SIGHUP, or the watcher saw something."""
        self._start("reload", self.reload())

    async def _shut_down(self, control: Listener) -> None:
        grace = self.config.spec.server.shutdown_grace if self.config.spec else 0.0
        started = time.monotonic()
        log.get().info("shutdown", running=len(self.gateway.open_tickets()), grace_s=grace)
        self.listeners.close()
        self.controller.stop()
        await self.listeners.closed(grace)
        left = len(self.gateway.open_tickets())
        if left:
            message = f"omlxd stops and its grace of {grace:g} s is over; send the request again"
            self.controller.give_up(ModelUnavailable(message))
            await self.listeners.closed(LAST_WORDS_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.controller.reconcile()  # whoever still runs is told to stop, so its end is no death
        await asyncio.gather(self.controller.fleet.close(STOP_GRACE_S), self.tools.pool.close())
        control.server.stop()
        await asyncio.wait([control.task], timeout=LAST_WORDS_S)
        took = round(time.monotonic() - started, 3)
        log.get().info("shutdown", done=True, given_up=left, duration_s=took)

    def _start(self, name: str, body: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(body, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A shell that breaks takes the daemon down: launchd starts a whole one."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.get().critical("task_failed", task=task.get_name(), exc_info=error)
            self._die(1)

    def _die(self, code: int) -> None:
        self.controller.fleet.kill()
        self.tools.pool.kill()
        os._exit(code)

    # -------------------------------------------------------------- files

    async def reload(self) -> None:
        """Look at the files until they say what they mean."""
        left_s = await self.edit(self.config.reload)
        while left_s > 0:
            await asyncio.sleep(left_s)
            left_s = await self.edit(self.config.reload)

    async def edit(self, change: Callable[[], Outcome]) -> float:
        """Read or write the files, put them in force; seconds until they want another look."""
        async with self._files:
            outcome = await asyncio.to_thread(change)
            self._took(outcome)
        return outcome.look_again_s

    def _took(self, outcome: Outcome) -> None:
        for note in outcome.notes:
            log.get().warning("config_note", message=note)
        for model, key in outcome.released:
            self.journal.override_released(model, key)
        if outcome.rejected and self.config.problems:
            self.journal.rejected(self.config.problems)
        if outcome.accepted:
            self.journal.applied(self.config.generation, outcome.changes, is_first=outcome.is_first)
        self.follow()

    def follow(self) -> None:
        """Put the spec in force, over the models as they were last discovered."""
        force = self.config.in_force
        if force is not None:
            spec = force.spec
            self._configure_log(spec)
            self._settings = server_settings(self.home, spec, force.resolved.api_keys)
            self.listeners.want(spec.server.listen, has_keys=bool(force.resolved.api_keys))
            self.tools.want(force)
            self.scanner.want(scan_inputs(self.home, spec))
            cold_dir = resolve_path(self.home, spec.cache.cold_dir)
            self.cold.want(
                ColdSettings(
                    path=cold_dir,
                    budget_bytes=spec.cache.cold.of(0),
                    min_free_bytes=spec.cache.cold_min_free.of(0),
                )
            )
            known = self.departing | self.catalog
            self.catalog = self._catalog_of(spec)
            self.departing = {m: e for m, e in known.items() if m not in self.catalog}
            self.controller.want(
                desired_state(
                    self.catalog,
                    spec,
                    generation=self.config.generation,
                    host=self._host,
                    figures=self._figures.by_model,
                    pinned_by=self.config.pinned_by(),
                    templates=force.resolved.templates,
                    cold_dir=str(cold_dir),
                )
            )
        self.controller.wake()

    def _catalog_of(self, spec: Spec) -> dict[ModelId, Entry]:
        return build_catalog(
            spec,
            self.scanner.discovery.cards,
            ram=self._host.ram_bytes,
            figures=self._figures.by_model,
        )

    def _configure_log(self, spec: Spec) -> None:
        log.configure(
            self.home / "logs" / "server.log",
            spec.logging.level,
            max_size=spec.logging.max_size.of(0),
            keep=spec.logging.keep,
            console=sys.stderr.isatty(),
        )

    def dry_run(self, text: str, file: str) -> PlanResult:
        """What saving `text` as omlx.toml would change."""
        fresh, problems = self.config.dry_run(text, file)
        if fresh is None:
            return PlanResult(valid=False, problems=list(problems), changes=[])
        changes = diff(self.config.spec or Spec(), fresh)
        phases = {model: engine.phase for model, engine in self.controller.engines.items()}
        remaining = self._catalog_of(fresh).values()
        served = {entry.id for entry in remaining if entry.servable or entry.declared}
        held = self.listeners.held.addresses
        told = consequences(changes, phases, served, held=held)
        return PlanResult(valid=True, problems=[], changes=changes, consequences=told)

    # -------------------------------------------------------------- after a pass

    def _changed(self) -> None:
        engines = self.controller.engines
        self.departing = {m: e for m, e in self.departing.items() if m in engines}
        folders = [f"{p.where}: {p.message}" for p in self.scanner.discovery.problems]
        extra = (
            config_valid(self.config.problems, has_spec=self.config.spec is not None),
            listening(self.listeners.failures),
            *listen_drift(self.listeners.held.addresses, self.listeners.drift),
            folders_found(folders),
            aliases(self.catalog),
            *self._fallback(),
            *self.tools.condition(),
            cold_tier(self.cold.view, self.controller.cache.degraded),
        )
        self.conditions.update(self.controller, self.catalog, extra)
        self.names.learn(self.controller.cache.namespaces)
        self.service.notify()

    def _fallback(self) -> tuple[Condition, ...]:
        name = self.config.spec.server.fallback_model if self.config.spec else ""
        try:
            return fallback_model(name, self.catalog[self.resolve_id(name)] if name else None)
        except ModelNotFound:
            return fallback_model(name, None)

    def _cold_looked(self) -> None:
        self.controller.cold_dir = self.cold.view.dir
        if self.cold.view.tidied is not None:
            in_use = self.controller.cache.namespaces.keys()
            self.names.forget(self.cold.view.tidied.namespaces | in_use)
        self.controller.wake()

    def _measured(self, model: ModelId, footprint: int, loaded: Loaded) -> None:
        if self._figures.measured(model, footprint, loaded):
            self.follow()

    # -------------------------------------------------------------- Dispatcher, for the gateway

    def request_arrived(self, ticket: Ticket) -> None:
        self.controller.request_arrived(ticket)

    def request_ended(self, ticket: Ticket) -> None:
        self.controller.request_ended(ticket)

    def server_settings(self) -> ServerSettings:
        return self._settings

    def served(self) -> tuple[ServedModel, ...]:
        return tuple(
            served_model(entry, self.controller.engine(entry.id).phase)
            for entry in self.catalog.values()
            if entry.servable
        )

    def resolve_id(self, name: str) -> ModelId:
        """Id of a declared or served model; raises ModelNotFound."""
        cards = {e.id: e.card for e in self.catalog.values() if e.card is not None}
        aliases = {alias: e.id for e in self.catalog.values() for alias in e.aliases}
        if name in self.catalog:
            return name
        return resolve(name, cards, aliases)

    def resolve(self, name: str) -> ServedModel:
        try:
            return self.find(name)
        except ModelNotFound:
            fallback = self.config.spec.server.fallback_model if self.config.spec else ""
            if not fallback:
                raise
            return self.find(fallback)

    def find(self, name: str) -> ServedModel:
        entry = self.catalog[self.resolve_id(name)]
        if not entry.servable:
            raise ModelUnavailable(f"{entry.id} cannot be served: {entry.reason}", param="model")
        return served_model(entry, self.controller.engine(entry.id).phase)

    def readiness(self) -> Readiness:
        ready = next((c for c in self.conditions.daemon if c.type == "Ready"), None)
        if ready is None:
            return Readiness(False, "Starting")
        return Readiness(ready.status == "True", ready.reason)

    def render_metrics(self) -> bytes:
        status = self.service.status()
        self.metrics.set_gauges(
            Gauges(
                models=[
                    ModelGauges(model=m.id, phase=m.phase, running=m.running, waiting=m.waiting)
                    for m in status.models
                ],
                generation=status.generation,
                observed_generation=status.observed_generation,
                reload_ok=status.config.valid,
                footprint_bytes=status.memory.footprint_bytes,
                cold_bytes=status.memory.cold_bytes,
                cold_written_bytes=self.controller.cache.written_bytes,
            )
        )
        return self.metrics.render()
