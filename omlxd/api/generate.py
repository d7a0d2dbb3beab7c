"""A POST on a model route: body → job → events → answer, and one record at the end of it."""

from __future__ import annotations

import asyncio
import time

from starlette.types import Receive, Scope, Send

from omlxd.api.body import ClientGone, check_headers, read_object, while_there
from omlxd.api.media import MediaReader
from omlxd.api.merge import generate
from omlxd.api.meter import Meter
from omlxd.api.ports import Gateway, RequestRecord
from omlxd.api.respond import REQUEST_ID, send_error
from omlxd.api.stream import Clock, Pace, Reply
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
            job = await self._read_job(scope, receive, meter.record)
        except OmlxError as error:
            meter.fail(error)
            meter.close(self._clock.now())
            await send_error(scope, send, error)
            return
        reply = Reply(job, scope=scope, send=send, meter=meter, clock=self._clock, pace=self._pace)
        timeout_s = self._gateway.settings.request_timeout_s
        await reply.run(generate(self._gateway, job, timeout_s=timeout_s), receive)

    async def _read_job(self, scope: Scope, receive: Receive, record: RequestRecord) -> Job:
        check_headers(scope["headers"])
        body = await read_object(receive)
        record.stream = body.get("stream") is True
        model = self._gateway.resolve(model_name(body))
        record.model = model.id
        call = Call(request_id=record.request_id, created=int(time.time()), model=model)
        job = self._dialect.parse(body, call)
        record.media_omitted = job.media_omitted
        if not job.pictures:
            return job
        return await while_there(self._media.read(job, self._gateway.settings), receive)
