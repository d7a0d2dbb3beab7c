"""Several prompts of one HTTP request, run side by side and read as one event stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from omlxd.api.ports import Gateway
from omlxd.api.wire.dialect import Job
from omlxd.errors import EngineFailed
from omlxd.ipc.messages import (
    Accepted,
    ChoiceEvent,
    Completed,
    Event,
    Request,
    Usage,
)

_Item = tuple[int, Event] | Exception


@asynccontextmanager
async def generate(
    gateway: Gateway, job: Job, *, timeout_s: float | None
) -> AsyncIterator[AsyncIterator[Event]]:
    """The job's events; leaving the context cancels every request of it."""
    if len(job.requests) == 1:
        async with gateway.generate(job.requests[0], timeout_s=timeout_s) as events:
            yield events
        return
    inbox: asyncio.Queue[_Item] = asyncio.Queue(maxsize=1)  # a slow client slows the readers
    all_accepted = asyncio.Event()
    readers = [
        asyncio.create_task(
            _read(gateway, request, number, inbox, all_accepted, timeout_s),
            name=f"read {request.request_id}",
        )
        for number, request in enumerate(job.requests)
    ]
    try:
        yield _merged(job, inbox, all_accepted)
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)


async def _read(
    gateway: Gateway,
    request: Request,
    number: int,
    inbox: asyncio.Queue[_Item],
    all_accepted: asyncio.Event,
    timeout_s: float | None,
) -> None:
    """Passes one request's events on; text waits until no prompt can be refused any more."""
    try:
        async with gateway.generate(request, timeout_s=timeout_s) as events:
            async for event in events:
                await inbox.put((number, event))
                if isinstance(event, Accepted):
                    await all_accepted.wait()
                elif isinstance(event, Completed):
                    return
        raise EngineFailed(f"{request.request_id} ended without a result. Send it again.")
    except Exception as error:
        await inbox.put(error)


async def _merged(
    job: Job, inbox: asyncio.Queue[_Item], all_accepted: asyncio.Event
) -> AsyncIterator[Event]:
    request_id = job.requests[0].request_id
    accepted: dict[int, int] = {}  # prompt tokens
    completed: list[Completed] = []
    while len(completed) < len(job.requests):
        item = await inbox.get()
        if isinstance(item, Exception):
            raise item
        number, event = item
        if isinstance(event, Accepted):
            accepted[number] = event.prompt_tokens
            if len(accepted) == len(job.requests) and not all_accepted.is_set():
                all_accepted.set()
                yield Accepted(request_id, sum(accepted.values()))
        elif isinstance(event, ChoiceEvent):
            yield msgspec.structs.replace(event, index=number * job.n + event.index)
        elif isinstance(event, Completed):
            completed.append(event)
    yield Completed(
        request_id, _sum(completed), queue_ms=max(event.queue_ms for event in completed)
    )


def _sum(completed: list[Completed]) -> Usage:
    usages = [event.usage for event in completed]
    return Usage(
        **{name: sum(getattr(usage, name) for usage in usages) for name in Usage.__struct_fields__}
    )
