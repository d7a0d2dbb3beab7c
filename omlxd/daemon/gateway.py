"""Requests on their way: from the HTTP side to a worker and back.

A ticket waits until the controller hands it to a worker, is retried once if that worker dies
before it sent anything, and ends exactly once, whatever happens first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from omlxd.api.ports import Readiness, RequestRecord, ServedModel, ServerSettings, ToolServers
from omlxd.control.wire import RequestStatus
from omlxd.daemon.recent import RecentRequests
from omlxd.errors import (
    BY_CODE,
    ContextOverflow,
    EngineFailed,
    OmlxError,
    RequestInvalid,
    RequestTimeout,
    WorkerDied,
)
from omlxd.ipc.framing import FramingError
from omlxd.ipc.messages import (
    Accepted,
    Cancel,
    Completed,
    Event,
    Failed,
    Finished,
    Output,
    Request,
    RowStats,
    Submit,
    ToWorker,
)
from omlxd.observe import log
from omlxd.observe.metrics import Metrics


class WorkerLink(Protocol):
    """The part of a supervisor's worker that a ticket needs."""

    @property
    def worker_id(self) -> int: ...

    @property
    def pid(self) -> int: ...

    def send(self, message: ToWorker) -> None: ...


@dataclass(slots=True, eq=False)
class Ticket:
    """One request. `waiting` for an engine → `handed` to a worker → `ended`."""

    request: Request
    arrived_at: float
    state: Literal["waiting", "handed", "ended"] = "waiting"
    worker: WorkerLink | None = None
    accepted: bool = False
    started: bool = False  # something of the reply has been passed on
    retried: bool = False
    last_delta_at: float | None = None
    inbox: asyncio.Queue[Event | OmlxError] = field(default_factory=asyncio.Queue)

    @property
    def model(self) -> str:
        return self.request.model

    def hand(self, worker: WorkerLink) -> None:
        """Give the request to a worker; it goes on waiting when that raises.

        WorkerDied: the worker is gone. RequestInvalid: no frame can carry the request.
        """
        assert self.state == "waiting", self.state
        try:
            worker.send(Submit(self.request))
        except (OverflowError, FramingError) as error:
            raise RequestInvalid(
                f"The request cannot be passed on: {error}. Whole numbers, in tools and template "
                "arguments too, have at most 64 bits."
            ) from error
        self.state, self.worker = "handed", worker

    def fail(self, error: OmlxError) -> None:
        """End it with an error; nothing follows."""
        if self.state != "ended":
            self.state = "ended"
            self.inbox.put_nowait(error)

    def requeue(self) -> bool:
        """Back to waiting after its worker died; False if it must fail instead."""
        if self.started or self.retried:
            return False
        self.state, self.worker, self.retried = "waiting", None, True
        return True


class Dispatcher(Protocol):
    """The controller, as the gateway uses it."""

    def request_arrived(self, ticket: Ticket) -> None: ...

    def request_ended(self, ticket: Ticket) -> None: ...

    def served(self) -> tuple[ServedModel, ...]: ...

    def find(self, name: str) -> ServedModel: ...

    def resolve(self, name: str) -> ServedModel: ...

    def readiness(self) -> Readiness: ...

    def server_settings(self) -> ServerSettings: ...

    def render_metrics(self) -> bytes: ...


def _prompt(request: Request) -> dict[str, object]:
    """The text of a request, for the log."""
    names = ("messages", "prompt", "inputs", "query", "documents")
    text = {name: getattr(request, name) for name in names if hasattr(request, name)}
    return {"request_id": request.request_id, "model": request.model, **text}


def error_of(failed: Failed) -> OmlxError:
    """The exception a worker's `Failed` stands for."""
    if failed.code == ContextOverflow.code:
        return ContextOverflow(
            failed.message,
            param=failed.param,
            prompt_tokens=failed.prompt_tokens,
            max_context=failed.max_context,
            at_least=failed.at_least,
        )
    error = BY_CODE.get(failed.code, EngineFailed)
    return error(failed.message, param=failed.param, retry_after_s=failed.retry_after_s)


class RequestGateway:
    """Implements `omlxd.api.ports.Gateway`; owns the tickets."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        metrics: Metrics,
        *,
        tools: ToolServers,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._dispatcher = dispatcher
        self._metrics = metrics
        self._clock = clock
        self._tools = tools
        self.recent = RecentRequests()
        self._tickets: dict[str, Ticket] = {}

    # -------------------------------------------------------------- for the HTTP side

    @property
    def settings(self) -> ServerSettings:
        return self._dispatcher.server_settings()

    @property
    def tools(self) -> ToolServers:
        return self._tools

    def models(self) -> tuple[ServedModel, ...]:
        return self._dispatcher.served()

    def find(self, name: str) -> ServedModel:
        return self._dispatcher.find(name)

    def resolve(self, name: str) -> ServedModel:
        return self._dispatcher.resolve(name)

    def readiness(self) -> Readiness:
        return self._dispatcher.readiness()

    def metrics(self) -> bytes:
        return self._dispatcher.render_metrics()

    @asynccontextmanager
    async def generate(
        self, request: Request, *, timeout_s: float | None = None
    ) -> AsyncIterator[AsyncIterator[Event]]:
        assert request.request_id not in self._tickets, request.request_id
        ticket = Ticket(request, self._clock())
        self._tickets[request.request_id] = ticket
        if self.settings.log_prompts:
            log.get().info("prompt", **_prompt(request))
        try:
            self._dispatcher.request_arrived(ticket)
            yield self._events(ticket, timeout_s)
        finally:
            del self._tickets[request.request_id]
            self._leave(ticket)

    def record(self, record: RequestRecord) -> None:
        """The `request` log line and the metrics of one ended request."""
        fields: dict[str, object] = {
            "request_id": record.request_id,
            "model": record.model,
            "api": record.api,
            "tokens": record.prompt_tokens + record.output_tokens,
            "prompt_tokens": record.prompt_tokens,
            "cached_tokens": record.cached_tokens,
            "output_tokens": record.output_tokens,
            "cache_hit": record.cached_tokens > 0,
            "cache": record.cache,
            "queue_ms": round(record.queue_ms, 1),
            "ttft_ms": None if record.ttft_ms is None else round(record.ttft_ms, 1),
            "latency_ms": round(record.latency_ms, 1),
            "output_tps": None if record.output_tps is None else round(record.output_tps, 2),
            "status": record.status,
            "finish_reason": record.finish_reason,
            "stream": record.stream,
        }
        if record.media_omitted:
            fields["media_omitted"] = record.media_omitted
        if record.error:
            fields["error"] = record.error
        log.get().info("request", **fields)
        self.recent.ended(record, time.time())
        self._metrics.request_finished(
            model=record.model,
            api=record.api,
            status=record.status,
            finish_reason=record.finish_reason,
            prompt_tokens=record.prompt_tokens,
            output_tokens=record.output_tokens,
            ram=record.cache["ram"],
            ssd=record.cache["ssd"],
            computed=record.cache["computed"],
            ttft_s=None if record.ttft_ms is None else record.ttft_ms / 1e3,
            duration_s=record.latency_ms / 1e3,
        )

    async def _events(self, ticket: Ticket, timeout_s: float | None) -> AsyncIterator[Event]:
        deadline = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    item = await ticket.inbox.get()
            except TimeoutError:
                raise RequestTimeout(
                    f"the request was given up after {timeout_s:g} s (server.request_timeout); "
                    f"model {ticket.model!r} had not finished"
                ) from None
            if isinstance(item, OmlxError):
                raise item
            yield item
            if isinstance(item, Completed):
                return

    def _leave(self, ticket: Ticket) -> None:
        """The client is done with it: cancel what still runs."""
        if ticket.state == "handed" and ticket.worker is not None:
            try:
                ticket.worker.send(Cancel(ticket.request.request_id))
            except WorkerDied:
                log.get().debug("cancel_after_exit", request_id=ticket.request.request_id)
        if ticket.state != "ended":
            self._dispatcher.request_ended(ticket)
            ticket.state = "ended"

    # -------------------------------------------------------------- for the controller

    def deliver(self, events: Iterable[Event]) -> None:
        """Events of a worker, in order, to the requests that still want them."""
        now = self._clock()
        for event in events:
            ticket = self._tickets.get(event.request_id)
            if ticket is not None and ticket.state == "handed":
                self._deliver_one(ticket, event, now)

    def _deliver_one(self, ticket: Ticket, event: Event, now: float) -> None:
        if isinstance(event, Failed):
            self._dispatcher.request_ended(ticket)
            ticket.fail(error_of(event))
            return
        if isinstance(event, Accepted):
            if ticket.accepted:
                return  # the retry's; the client has seen the first
            ticket.accepted = True
        elif isinstance(event, Output):
            if ticket.last_delta_at is not None:
                self._metrics.inter_token(ticket.model, now - ticket.last_delta_at)
            ticket.last_delta_at = now
            ticket.started = True
        elif isinstance(event, Finished):
            ticket.started = True  # a choice may end without a word
        elif isinstance(event, Completed):
            self._dispatcher.request_ended(ticket)
            ticket.state = "ended"
            if event.match is not None:
                self.recent.matched(event.request_id, event.match)
        ticket.inbox.put_nowait(event)

    def handed_to(self, worker_id: int) -> list[Ticket]:
        """Tickets that a worker holds."""
        return [
            ticket
            for ticket in self._tickets.values()
            if ticket.state == "handed" and ticket.worker and ticket.worker.worker_id == worker_id
        ]

    def waiting_for(self, model: str) -> list[Ticket]:
        """Tickets that wait for an engine, oldest first."""
        return [t for t in self._tickets.values() if t.state == "waiting" and t.model == model]

    def open_tickets(self) -> list[Ticket]:
        return [t for t in self._tickets.values() if t.state != "ended"]

    def request_statuses(self, rows: dict[str, RowStats]) -> list[RequestStatus]:
        """What `omlxctl requests` shows; `rows` are the workers' own last figures by request."""
        now = self._clock()
        found = []
        for ticket in self.open_tickets():
            row = rows.get(ticket.request.request_id)
            if ticket.state == "waiting":
                status = "waiting_for_model"
            else:
                status = row.status if row else "waiting"
            found.append(
                RequestStatus(
                    request_id=ticket.request.request_id,
                    model=ticket.model,
                    api=ticket.request.api,
                    status=status,
                    prompt_tokens=row.prompt_tokens if row else 0,
                    computed_tokens=row.computed_tokens if row else 0,
                    output_tokens=row.output_tokens if row else 0,
                    age_s=round(now - ticket.arrived_at, 3),
                )
            )
        return found
