"""A reply whose tool calls are run here: which servers it is offered, and the runs it is made of.

The core is `omlxd.mcp.loop`; this carries out what it says. Leaving the reply, for any reason,
cancels the run or the call that is under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from omlxd.api.access import Caller, check_key, is_page, refuse_pages
from omlxd.api.ports import Gateway, ServedModel, ServerSettings
from omlxd.api.wire.dialect import Job
from omlxd.errors import EngineFailed, NotFound, OmlxError, RequestInvalid, RequestTimeout
from omlxd.ipc.messages import Completed, Event, GenerateRequest
from omlxd.mcp.loop import MAX_CALLS, Call, ToolLoop
from omlxd.mcp.types import Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The tool servers that a reply may use."""

    names: tuple[str, ...]
    is_explicit: bool  # the request names them; otherwise its model's settings do


def ask_of(
    body: Mapping[str, Any],
    job: Job,
    model: ServedModel,
    caller: Caller,
    settings: ServerSettings,
) -> Ask | None:
    """What `mcp` of the body asks for, or else what holds for the model; None = no tools of ours.

    A web page is never given tools. Raises RequestInvalid, Forbidden or Unauthorized.
    """
    names = _names(body)
    is_explicit = names is not None
    if names is None:
        names = () if is_page(caller) else model.mcp
    if not names:
        return None
    if is_explicit:
        refuse_pages(caller)
        check_key(settings, caller, also_local=True)
    if _conversation(job) is None:
        if not is_explicit:
            return None  # a plain prompt has no place for tools
        raise RequestInvalid("mcp: a plain prompt cannot call tools; send messages.", param="mcp")
    if job.n != 1:
        raise RequestInvalid(
            f"n: a reply that may call tools has one choice, and this asks for {job.n}; send n = 1,"
            " or mcp = [] for no tools of the server.",
            param="n",
        )
    return Ask(names=names, is_explicit=is_explicit)


def _conversation(job: Job) -> GenerateRequest | None:
    """The one request of a job whose reply may call tools."""
    [first, *others] = job.requests
    if others or not isinstance(first, GenerateRequest) or first.messages is None:
        return None
    return first


def _names(body: Mapping[str, Any]) -> tuple[str, ...] | None:
    value = body.get("mcp")
    extra = body.get("extra_body")
    if value is None and isinstance(extra, Mapping):
        value = extra.get("mcp")
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise RequestInvalid("mcp: send a list of names of tool servers.", param="mcp")
    return tuple(dict.fromkeys(value))


@asynccontextmanager
async def generate_with_tools(
    gateway: Gateway, job: Job, ask: Ask, *, timeout_s: float | None
) -> AsyncIterator[AsyncIterator[Event]]:
    """The job's events; leaving the context cancels whatever is under way."""
    request = _conversation(job)
    assert request is not None, "nothing was asked for that could call tools"
    reply = _Reply(gateway, request, timeout_s)
    async with aclosing(reply.events(ask)) as events:
        yield events


class _Reply:
    """`timeout_s` holds for all of it together."""

    def __init__(self, gateway: Gateway, request: GenerateRequest, timeout_s: float | None) -> None:
        self._gateway = gateway
        self._request = request
        self._timeout_s = timeout_s
        now = asyncio.get_running_loop().time()
        self._deadline = None if timeout_s is None else now + timeout_s

    async def events(self, ask: Ask) -> AsyncGenerator[Event, None]:
        loop = await self._offered(ask)
        request: GenerateRequest | None = loop.request
        while request is not None:
            async with aclosing(self._run(request)) as run:
                async for event in run:
                    for shown in loop.take(event):
                        yield shown
            for number, call in enumerate(loop.calls):
                for shown in loop.begin(call):
                    yield shown
                result = await self._result(call, number)
                for shown in loop.answer(call, result):
                    yield shown
            request = loop.next_request()

    async def _offered(self, ask: Ask) -> ToolLoop:
        tools = self._gateway.tools
        async with self._in_time():
            offer = await tools.offered(ask.names)
        for error in offer.off.values():
            if ask.is_explicit:
                unknown = isinstance(error, NotFound)
                raise RequestInvalid(f"mcp: {error}", param="mcp") if unknown else error
        return ToolLoop(
            self._request,
            offer.tools,
            max_rounds=tools.limits.max_rounds,
            notes=[error.message for error in offer.off.values()],
        )

    async def _run(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        try:
            left_s = self._left_s()
            async with self._gateway.generate(request, timeout_s=left_s) as events:
                async for event in events:
                    yield event
                    if isinstance(event, Completed):
                        return
        except RequestTimeout:
            raise self._timed_out() from None
        raise EngineFailed(f"{request.request_id} ended without a result. Send it again.")

    async def _result(self, call: Call, number: int) -> Result:
        """What the model is told; no failure of a tool ends the reply."""
        if number >= MAX_CALLS:
            return Result(text=f"not run: at most {MAX_CALLS} calls at once", is_error=True)
        tools, name = self._gateway.tools, call.offered.name
        async with self._in_time():
            try:
                arguments = call.decoded()
                return await tools.call(name, arguments, request_id=self._request.request_id)
            except OmlxError as error:
                return Result(text=error.message, is_error=True)

    @asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout_at(self._deadline):
                yield
        except TimeoutError:
            raise self._timed_out() from None

    def _left_s(self) -> float | None:
        if self._deadline is None:
            return None
        left = self._deadline - asyncio.get_running_loop().time()
        if left <= 0:
            raise self._timed_out()
        return left

    def _timed_out(self) -> RequestTimeout:
        return RequestTimeout(
            f"the request was given up after {self._timeout_s:g} s (server.request_timeout); "
            f"model {self._request.model!r} and the tools it called had not finished"
        )
