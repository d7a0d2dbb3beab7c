"""A POST on a model route: body → job → events → answer, and one record at the end of it."""

from __future__ import annotations

import asyncio
import time

from starlette.types import Receive, Scope, Send

from omlxd.api.body import ClientGone, check_headers, read_object, while_there
from omlxd.api.guard import CALLER
from omlxd.api.media import MediaReader
from omlxd.api.merge import generate
from omlxd.api.meter import Meter
from omlxd.api.ports import Gateway, RequestRecord
from omlxd.api.respond import REQUEST_ID, send_error
from omlxd.api.stream import Clock, Pace, Reply
from omlxd.api.tool_reply import Ask, ask_of, generate_with_tools
from omlxd.api.wire.dialect import Call, Dialect, Job, model_name
from omlxd.errors import OmlxError


class GenerateRoute:
    """An ASGI endpoint that speaks one dialect."""

    def __init__(
        self, gateway: Gateway, dialect: Dialect, media: MediaReader, *, clock: Clock, pace: Pace
    ) -> None:
        self._gateway = gateway
        self._dialect = dialect
        self._media = media
        self._clock = clock
        self._pace = pace

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        record = RequestRecord(request_id=scope[REQUEST_ID], api=self._dialect.name)
        meter = Meter(record, self._clock.now(), keep=self._gateway.record)
        try:
            await self._serve(scope, receive, send, meter)
        except ClientGone:
            meter.client_gone()
        except asyncio.CancelledError:
            meter.shut_down()
            raise
        finally:
            meter.close(self._clock.now())

    async def _serve(self, scope: Scope, receive: Receive, send: Send, meter: Meter) -> None:
        try:
            job, ask = await self._read_job(scope, receive, meter.record)
        except OmlxError as error:
            meter.fail(error)
            meter.close(self._clock.now())
            await send_error(scope, send, error)
            return
        reply = Reply(job, scope=scope, send=send, meter=meter, clock=self._clock, pace=self._pace)
        timeout_s = self._gateway.settings.request_timeout_s
        if ask is None:
            source = generate(self._gateway, job, timeout_s=timeout_s)
        else:
            source = generate_with_tools(self._gateway, job, ask, timeout_s=timeout_s)
        await reply.run(source, receive)

    async def _read_job(
        self, scope: Scope, receive: Receive, record: RequestRecord
    ) -> tuple[Job, Ask | None]:
        check_headers(scope["headers"])
        body = await read_object(receive)
        record.stream = body.get("stream") is True
        model = self._gateway.resolve(model_name(body))
        record.model = model.id
        call = Call(request_id=record.request_id, created=int(time.time()), model=model)
        job = self._dialect.parse(body, call)
        record.media_omitted = job.media_omitted
        settings = self._gateway.settings
        ask = ask_of(body, job, model, scope[CALLER], settings)
        if job.pictures:
            job = await while_there(self._media.read(job, settings), receive)
        return job, ask
