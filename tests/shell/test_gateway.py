"""Tickets: every request ends exactly once, in whatever order things happen to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from omlxd.api.ports import Readiness, ServedModel, ServerSettings
from omlxd.daemon.gateway import RequestGateway, Ticket, error_of
from omlxd.errors import (
    ContextOverflow,
    EngineFailed,
    ModelUnavailable,
    OmlxError,
    QueueFull,
    RequestInvalid,
    RequestTimeout,
    WorkerDied,
)
from omlxd.ipc.messages import (
    Accepted,
    Cancel,
    Completed,
    Delta,
    Event,
    Failed,
    Finished,
    RowStats,
    Submit,
    ToWorker,
    Usage,
)
from omlxd.mcp.pool import ToolPool
from omlxd.observe.metrics import Metrics
from tests.support.engines import WarpClock, request

DONE = Completed("r1", Usage(prompt_tokens=3, output_tokens=1))


class Desk:
    """Implements `Dispatcher`: keeps the tickets, and what was said of them."""

    def __init__(self) -> None:
        self.arrived: list[Ticket] = []
        self.ended: list[tuple[str, str]] = []  # request id and the state it ended in
        self.refusal: OmlxError | None = None
        self.settings = ServerSettings(metrics=True)

    def request_arrived(self, ticket: Ticket) -> None:
        self.arrived.append(ticket)
        if self.refusal is not None:
            ticket.fail(self.refusal)

    def request_ended(self, ticket: Ticket) -> None:
        self.ended.append((ticket.request.request_id, ticket.state))

    def served(self) -> tuple[ServedModel, ...]:
        return (ServedModel(id="m", kind="llm"),)

    def resolve(self, name: str) -> ServedModel:
        return ServedModel(id=name, kind="llm")

    def readiness(self) -> Readiness:
        return Readiness(False, "Starting")

    def server_settings(self) -> ServerSettings:
        return self.settings

    def render_metrics(self) -> bytes:
        return b"omlxd_up 1\n"


class Link:
    """A worker's end: keeps what it was sent; `gone` makes it refuse."""

    def __init__(self, worker_id: int = 1) -> None:
        self.worker_id, self.pid = worker_id, 4000 + worker_id
        self.sent: list[ToWorker] = []
        self.gone = False

    def send(self, message: ToWorker) -> None:
        if self.gone:
            raise WorkerDied("the worker is gone")
        self.sent.append(message)


class Client:
    """One request, read step by step."""

    def __init__(self, gateway: RequestGateway, desk: Desk, **fields: Any) -> None:
        timeout_s = fields.pop("timeout_s", None)
        self._asked = request(**fields)
        self._context: AbstractAsyncContextManager[AsyncIterator[Event]] = gateway.generate(
            self._asked, timeout_s=timeout_s
        )
        self._desk = desk
        self.events: AsyncIterator[Event]

    async def __aenter__(self) -> Client:
        self.events = await self._context.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._context.__aexit__(None, None, None)

    @property
    def ticket(self) -> Ticket:
        found = [t for t in self._desk.arrived if t.request is self._asked]
        return found[0]

    async def next(self) -> Event:
        return await anext(self.events)

    async def rest(self) -> list[Event]:
        return [event async for event in self.events]


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def gateway(desk: Desk) -> RequestGateway:
    return RequestGateway(desk, Metrics(), tools=ToolPool(Path("/")), clock=WarpClock())


# ------------------------------------------------------------------ the good end


async def test_a_request_from_arrival_to_its_end(gateway: RequestGateway, desk: Desk) -> None:
    """It waits, is handed over, streams, and ends once; nothing is sent after its end."""
    link = Link()
    async with Client(gateway, desk) as client:
        assert gateway.waiting_for("m") == [client.ticket]
        client.ticket.hand(link)
        assert gateway.waiting_for("m") == []
        assert gateway.handed_to(1) == [client.ticket]
        gateway.deliver([Accepted("r1", 3), Delta("r1", 0, "hi")])
        assert await client.next() == Accepted("r1", 3)
        gateway.deliver([Finished("r1", 0, "stop"), DONE, Delta("r1", 0, "never")])
        rest = await client.rest()
    assert rest == [Delta("r1", 0, "hi"), Finished("r1", 0, "stop"), DONE]
    assert link.sent == [Submit(client.ticket.request)]
    assert desk.ended == [("r1", "handed")]
    assert gateway.open_tickets() == []


async def test_events_go_to_their_own_request(gateway: RequestGateway, desk: Desk) -> None:
    """One frame may hold events of many requests, also of such that are gone."""
    link = Link()
    async with (
        Client(gateway, desk, request_id="a") as a,
        Client(gateway, desk, request_id="b") as b,
    ):
        a.ticket.hand(link)
        b.ticket.hand(link)
        gateway.deliver(
            [Delta("b", 0, "B"), Delta("gone", 0, "?"), Delta("a", 0, "A"), Accepted("gone", 1)]
        )
        assert await a.next() == Delta("a", 0, "A")
        assert await b.next() == Delta("b", 0, "B")


# ------------------------------------------------------------------ clients that leave


async def test_leaving_while_it_waits(gateway: RequestGateway, desk: Desk) -> None:
    """No worker hears of it, and it ends as one that waited."""
    async with Client(gateway, desk) as client:
        pass
    assert desk.ended == [("r1", "waiting")]
    client.ticket.fail(ModelUnavailable("too late"))
    assert client.ticket.inbox.empty()


async def test_leaving_cancels_in_the_worker(gateway: RequestGateway, desk: Desk) -> None:
    """The worker is told, and what it still says of the request is dropped."""
    link = Link()
    async with Client(gateway, desk) as client:
        client.ticket.hand(link)
    assert link.sent[1:] == [Cancel("r1")]
    gateway.deliver([Delta("r1", 0, "late"), DONE])
    assert desk.ended == [("r1", "handed")]


async def test_leaving_a_worker_that_is_gone(gateway: RequestGateway, desk: Desk) -> None:
    """A cancel that cannot be sent is no error; the request has ended all the same."""
    link = Link()
    async with Client(gateway, desk) as client:
        client.ticket.hand(link)
        link.gone = True
    assert desk.ended == [("r1", "handed")]
    assert gateway.handed_to(1) == []


# ------------------------------------------------------------------ refusals and failures


async def test_a_refusal_at_the_door(gateway: RequestGateway, desk: Desk) -> None:
    """What is refused on arrival never counted, so nobody hears of its end."""
    desk.refusal = QueueFull("full", retry_after_s=5)
    async with Client(gateway, desk) as client:
        with pytest.raises(QueueFull):
            await client.next()
        with pytest.raises(StopAsyncIteration):
            await client.next()
    assert desk.ended == []


async def test_a_failure_is_raised_once(gateway: RequestGateway, desk: Desk) -> None:
    """`Failed` ends the request with its error; later events of it are dropped."""
    link = Link()
    async with Client(gateway, desk) as client:
        client.ticket.hand(link)
        failed = Failed("r1", "context_length_exceeded", "too long", None, 9000, 4096)
        gateway.deliver([failed, DONE, failed])
        with pytest.raises(ContextOverflow) as caught:
            await client.next()
    assert (caught.value.prompt_tokens, caught.value.max_context) == (9000, 4096)
    assert desk.ended == [("r1", "handed")]
    assert link.sent == [Submit(client.ticket.request)]


def test_a_code_nobody_knows_is_the_engines() -> None:
    """A worker's code that is in no table still ends the request, with the worker's words."""
    error = error_of(Failed("r1", "no_such_code", "it broke", "top_p"))
    assert (type(error), error.message, error.param) == (EngineFailed, "it broke", "top_p")


async def test_a_ticket_that_cannot_be_handed_waits_on(gateway: RequestGateway, desk: Desk) -> None:
    """A worker that is just gone leaves the ticket as it was; another may take it."""
    link = Link()
    link.gone = True
    async with Client(gateway, desk) as client:
        with pytest.raises(WorkerDied):
            client.ticket.hand(link)
        assert gateway.handed_to(1) == []
        client.ticket.hand(Link(2))
    assert desk.ended == [("r1", "handed")]


async def test_what_no_frame_can_carry_is_the_requests_fault(
    gateway: RequestGateway, desk: Desk
) -> None:
    """The error names the reason, and the ticket still waits, so it can be ended as such."""

    class Full(Link):
        def send(self, message: ToWorker) -> None:
            raise OverflowError("can't serialize ints < -2**63 or > 2**64 - 1")

    async with Client(gateway, desk) as client:
        with pytest.raises(RequestInvalid, match="64 bits"):
            client.ticket.hand(Full())
        assert client.ticket.state == "waiting"


# ------------------------------------------------------------------ time


async def test_the_deadline_holds_while_it_waits(gateway: RequestGateway, desk: Desk) -> None:
    """A request without an engine is given up in time, with the setting's name."""
    async with Client(gateway, desk, timeout_s=0.01) as client:
        with pytest.raises(RequestTimeout, match=r"server\.request_timeout"):
            await client.next()
    assert desk.ended == [("r1", "waiting")]


async def test_the_deadline_is_for_all_of_it(gateway: RequestGateway, desk: Desk) -> None:
    """It does not start anew with every event, and the worker is told to cease."""
    link = Link()
    async with Client(gateway, desk, timeout_s=0.05) as client:
        client.ticket.hand(link)

        async def keep_talking() -> None:
            while True:
                gateway.deliver([Delta("r1", 0, "x")])
                await asyncio.sleep(0.005)

        talking = asyncio.create_task(keep_talking())
        with pytest.raises(RequestTimeout):
            await client.rest()
        talking.cancel()
    assert link.sent[-1] == Cancel("r1")
    assert desk.ended == [("r1", "handed")]


# ------------------------------------------------------------------ workers that die


async def test_retried_once_before_a_word(gateway: RequestGateway, desk: Desk) -> None:
    """Accepted is no word yet: the client sees one Accepted and never that there were two."""
    async with Client(gateway, desk) as client:
        client.ticket.hand(Link(1))
        gateway.deliver([Accepted("r1", 3)])
        assert client.ticket.requeue()
        assert gateway.waiting_for("m") == [client.ticket]
        assert gateway.handed_to(1) == []
        gateway.deliver([Delta("r1", 0, "from the grave")])
        client.ticket.hand(Link(2))
        gateway.deliver([Accepted("r1", 3), Delta("r1", 0, "hi"), DONE])
        assert await client.rest() == [Accepted("r1", 3), Delta("r1", 0, "hi"), DONE]


async def test_not_retried_twice(gateway: RequestGateway, desk: Desk) -> None:
    """A request that two workers died of is not given to a third."""
    async with Client(gateway, desk) as client:
        client.ticket.hand(Link(1))
        assert client.ticket.requeue()
        client.ticket.hand(Link(2))
        assert not client.ticket.requeue()


@pytest.mark.parametrize("word", [Delta("r1", 0, "hi"), Finished("r1", 0, "stop")])
async def test_not_retried_after_a_word(gateway: RequestGateway, desk: Desk, word: Event) -> None:
    """Once a part of the reply is out, or a choice of it ended, a second try would repeat it."""
    async with Client(gateway, desk) as client:
        client.ticket.hand(Link())
        gateway.deliver([word])
        assert not client.ticket.requeue()
        client.ticket.fail(WorkerDied("it died"))
        assert await client.next() == word
        with pytest.raises(WorkerDied):
            await client.next()


# ------------------------------------------------------------------ what is shown


async def test_open_requests_are_shown(gateway: RequestGateway, desk: Desk) -> None:
    """Waiting for a model, waiting in its worker, or as the worker says."""
    row = RowStats("c", "prefill", prompt_tokens=10, computed_tokens=4, output_tokens=0)
    async with (
        Client(gateway, desk, request_id="a"),
        Client(gateway, desk, request_id="b") as b,
        Client(gateway, desk, request_id="c") as c,
    ):
        b.ticket.hand(Link())
        c.ticket.hand(Link())
        shown = {one.request_id: one for one in gateway.request_statuses({"c": row})}
    assert [one.status for one in shown.values()] == ["waiting_for_model", "waiting", "prefill"]
    assert (shown["c"].prompt_tokens, shown["c"].computed_tokens) == (10, 4)


def test_the_rest_is_the_dispatchers(gateway: RequestGateway, desk: Desk) -> None:
    """Names, settings, readiness and metrics come from whoever knows them."""
    assert gateway.models() == desk.served()
    assert gateway.resolve("x").id == "x"
    assert gateway.readiness() == Readiness(False, "Starting")
    assert gateway.settings is desk.settings
    assert gateway.metrics() == b"omlxd_up 1\n"
