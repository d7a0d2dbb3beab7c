"""Fills the record of one request from the events that pass. The times are given, not taken."""

from __future__ import annotations

from collections.abc import Callable

from omlxd.api.ports import RequestRecord
from omlxd.errors import OmlxError
from omlxd.ipc.messages import Accepted, Completed, Event, Finished, Output

CLIENT_GONE = 499
# A rate of less than this tells of the network's buffers, not of the model.
RATE_MIN_TOKENS = 2
RATE_MIN_S = 0.05


class Meter:
    """Times are seconds of one monotonic clock; `started` is when the request arrived.

    `close` hands the record over, once. It is called before the last bytes go out, so whoever has
    read the whole answer finds the log line and the metrics in place.
    """

    def __init__(
        self, record: RequestRecord, started: float, *, keep: Callable[[RequestRecord], None]
    ) -> None:
        self.record = record
        self._keep: Callable[[RequestRecord], None] | None = keep
        self._started = started
        self._first_at: float | None = None
        self._last_at = started
        self._num_first = 0  # output tokens that came with the first delta

    def note(self, event: Event, now: float) -> None:
        record = self.record
        if isinstance(event, Output):
            if event.tokens:
                self._count(event.tokens, now)
        elif isinstance(event, Accepted):
            record.prompt_tokens = event.prompt_tokens
        elif isinstance(event, Finished):
            record.finish_reason = record.finish_reason or event.reason
        elif isinstance(event, Completed):
            usage = event.usage
            record.prompt_tokens = usage.prompt_tokens
            record.cached_tokens = usage.cached_tokens
            record.output_tokens = usage.output_tokens
            record.cache = {"ram": usage.ram, "ssd": usage.ssd, "computed": usage.computed}
            record.queue_ms = event.queue_ms
            record.status = 200

    def fail(self, error: OmlxError) -> None:
        self._end(error.status, "error", error.message)

    def client_gone(self) -> None:
        self._end(CLIENT_GONE, "aborted", "The client closed the connection.")

    def shut_down(self) -> None:
        self._end(503, "aborted", "The server shut down under the request.")

    def close(self, now: float) -> None:
        """The figures that need the end. Rate: tokens after the first delta, over their time."""
        if self._keep is None:
            return
        record = self.record
        record.latency_ms = (now - self._started) * 1e3
        rest = record.output_tokens - self._num_first
        took = 0.0 if self._first_at is None else self._last_at - self._first_at
        if rest >= RATE_MIN_TOKENS and took >= RATE_MIN_S:
            record.output_tps = rest / took
        keep, self._keep = self._keep, None
        keep(record)

    def _count(self, tokens: int, now: float) -> None:
        if self._first_at is None:
            self._first_at, self._num_first = now, tokens
            self.record.ttft_ms = (now - self._started) * 1e3
        self.record.output_tokens += tokens
        self._last_at = now

    def _end(self, status: int, finish_reason: str, error: str) -> None:
        record = self.record
        record.status, record.finish_reason, record.error = status, finish_reason, error
