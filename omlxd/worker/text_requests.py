"""The requests of one engine, from acceptance to their terminal event.

Every request gets exactly one terminal event, and none after it was cancelled. It is being
accepted (elsewhere, in the order of submission), then open: the engine has its rows. What the
engine still had under way for a choice that ended, or a request that is gone, is ignored; its id
is refused as long as there may be such tokens, so that they never reach a successor.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from msgspec import structs

from omlxd.errors import ContextOverflow, EngineFailed, OmlxError, QueueFull, RequestInvalid
from omlxd.ipc.messages import (
    Accepted,
    Completed,
    Event,
    Failed,
    Finished,
    GenerateRequest,
    LiveSettings,
    PrefixMatch,
    Usage,
)
from omlxd.worker.accept import AcceptedRequest
from omlxd.worker.detokenize import Decoding
from omlxd.worker.divergence import excerpt, message_at
from omlxd.worker.ports import Engine, RowUsage, TokenOut
from omlxd.worker.template import normalise
from omlxd.worker.text_output import ChoiceOutput

# Starts to accept a request under these settings, does not wait for it, and has `on_accepted`
# called when the future is done. Futures are done in the order in which they were begun.
BeginAccept = Callable[[GenerateRequest, LiveSettings], Future[AcceptedRequest]]


@dataclass(slots=True)
class _Request:
    number: int  # its place in the order in which the engine was given requests
    asked: GenerateRequest
    prompt: Sequence[int]
    choices: list[ChoiceOutput]
    accepted_at: float
    may_log: bool
    scheduled_at: float | None = None
    usage: dict[int, RowUsage] = field(default_factory=dict)  # by choice


class Requests:
    """Owned by the text thread. Times are monotonic seconds; the events returned are to be sent."""

    def __init__(
        self,
        engine: Engine,
        *,
        decoding: Decoding,
        live: LiveSettings,
        begin_accept: BeginAccept,
    ) -> None:
        self._engine, self._decoding, self._live = engine, decoding, live
        self._begin_accept = begin_accept
        self._accepting: dict[str, Future[AcceptedRequest]] = {}
        self._counting: set[str] = set()  # of these, those that the engine never sees
        self._open: dict[str, _Request] = {}
        self._num_opened = 0
        # Requests cut short, of which the engine may still speak; with `_num_opened` of then.
        self._cut: dict[str, int] = {}
        self.batches = True  # False = the engine runs one request at a time

    def configure(self, live: LiveSettings) -> None:
        """For the next requests; others keep what they were submitted under."""
        self._live = live
        self._engine.configure(live)

    def submit(self, request: GenerateRequest) -> list[Event]:
        """Begin to accept it; `Failed` if that is refused."""
        try:
            self._check_id(request.request_id)
            if not request.count_only:
                self._check_queue(request.model)
        except OmlxError as error:
            return [_failed(request.request_id, error)]
        self._accepting[request.request_id] = self._begin_accept(request, self._live)
        if request.count_only:
            self._counting.add(request.request_id)
        return []

    def on_accepted(
        self, request: GenerateRequest, done: Future[AcceptedRequest], *, now: float
    ) -> list[Event]:
        """`Accepted`, or `Failed` with the reason; nothing if it was cancelled meanwhile."""
        if self._accepting.get(request.request_id) is not done:
            return []
        del self._accepting[request.request_id]
        self._counting.discard(request.request_id)
        error = done.exception()
        if isinstance(error, OmlxError):
            return [_failed(request.request_id, error)]
        if error is not None:
            # Templates and tokenizers are the model's code: a failure there is this request's.
            traceback.print_exception(error, file=sys.stderr)
            return [_failed(request.request_id, EngineFailed(f"not tokenised: {error!r}"))]
        accepted = done.result()
        size = Accepted(request.request_id, accepted.prompt_tokens)
        if request.count_only:
            return [size, Completed(request.request_id, Usage())]  # nothing was used
        self._num_opened += 1
        self._open[request.request_id] = _Request(
            number=self._num_opened,
            asked=request,
            prompt=accepted.rows[0].prompt,
            choices=self._choices(request, accepted),
            accepted_at=now,
            may_log=accepted.may_log,
        )
        self._engine.submit(accepted.rows)
        return [size]

    def cancel(self, request_id: str) -> None:
        """What is held back for the request goes too; unknown ids are ignored."""
        if (accepting := self._accepting.pop(request_id, None)) is not None:
            accepting.cancel()  # not even tokenised, if its turn has not come
            self._counting.discard(request_id)
        elif self._open.pop(request_id, None) is not None:
            self._cut_short(request_id)

    def on_scheduled(self, request_id: str, *, at: float) -> None:
        request = self._open.get(request_id)
        if request is None or request.scheduled_at is not None:
            return
        request.scheduled_at = at
        # The engine takes commands in order: what was cut before this request came is behind it.
        self._cut = {cut: when for cut, when in self._cut.items() if when >= request.number}

    def on_tokens(self, tokens: Sequence[TokenOut], usages: Iterable[RowUsage]) -> list[Event]:
        for usage in usages:
            if (request := self._open.get(usage.request_id)) is not None:
                request.usage[usage.index] = usage
        events: list[Event] = []
        for token in tokens:
            if (request := self._open.get(token.request_id)) is not None:
                events += self._on_token(token, request)
        return events

    def fail(self, request_id: str, error: OmlxError) -> list[Event]:
        """The engine gave the request up."""
        return [] if self._open.pop(request_id, None) is None else [_failed(request_id, error)]

    def fail_all(self, error: OmlxError) -> list[Event]:
        """The engine is no more."""
        ended = [*self._open, *self._accepting]
        self._open.clear()
        self._accepting.clear()
        self._counting.clear()
        return [_failed(request_id, error) for request_id in ended]

    def _on_token(self, token: TokenOut, request: _Request) -> list[Event]:
        choice = request.choices[token.index]
        if choice.is_ended:
            return []
        events: list[Event] = [*choice.feed(token)]
        if not events or not isinstance(events[-1], Finished):
            return events
        if token.finish is None:  # a stop string: the engine does not know yet
            self._cut_short(token.request_id, token.index)
        if all(choice.is_ended for choice in request.choices):
            del self._open[token.request_id]
            events.append(self._completed(token.request_id, request))
        return events

    def _cut_short(self, request_id: str, index: int | None = None) -> None:
        self._cut[request_id] = self._num_opened
        self._engine.cancel(request_id, index)

    def _check_id(self, request_id: str) -> None:
        if request_id in self._accepting or request_id in self._open or request_id in self._cut:
            raise RequestInvalid(f"request {request_id} is running already; use a new id")

    def _check_queue(self, model: str) -> None:
        unscheduled = sum(request.scheduled_at is None for request in self._open.values())
        waiting = len(self._accepting) - len(self._counting) + unscheduled
        slots = self._live.max_concurrent_requests if self.batches else 1
        free = max(0, slots - (len(self._open) - unscheduled))
        queued = waiting - free  # the others have their slots, and are about to begin
        if queued >= self._live.max_queue:
            raise QueueFull.of(model, waiting=max(0, queued), limit=self._live.max_queue)

    def _choices(self, request: GenerateRequest, accepted: AcceptedRequest) -> list[ChoiceOutput]:
        return [
            ChoiceOutput(request.request_id, row.index, decoding=self._decoding, plan=accepted.plan)
            for row in accepted.rows
        ]

    def _completed(self, request_id: str, request: _Request) -> Completed:
        # All choices have the same prompt: the one that ran most of it tells where it came from.
        paid = max(
            request.usage.values(),
            key=lambda usage: usage.computed,
            default=RowUsage(request_id, 0),
        )
        usage = Usage(
            prompt_tokens=len(request.prompt),
            output_tokens=sum(choice.num_tokens for choice in request.choices),
            reasoning_tokens=sum(choice.num_reasoning_tokens for choice in request.choices),
            cached_tokens=paid.cached_ram + paid.cached_ssd,
            ram=paid.cached_ram,
            ssd=paid.cached_ssd,
            computed=paid.computed,
        )
        scheduled_at = request.accepted_at if request.scheduled_at is None else request.scheduled_at
        queue_ms = (scheduled_at - request.accepted_at) * 1000
        match = paid.match and self._located(paid.match, request)
        return Completed(request_id, usage, queue_ms=queue_ms, match=match)

    def _located(self, match: PrefixMatch, request: _Request) -> PrefixMatch:
        """With the message, and the text if it may be told, in which its prompt parts from the
        nearest one that is stored.
        """
        at, messages = match.diverged_at, request.asked.messages
        if at is None or (messages is None and not request.may_log):
            return match
        prompt = self._decoding.text(list(request.prompt))
        before = self._decoding.text(list(request.prompt[:at]))
        if request.may_log:
            match = structs.replace(match, excerpt=excerpt(prompt, len(before)))
        if messages is None:
            return match
        contents = [message["content"] for message in normalise(messages)]
        return structs.replace(match, message_index=message_at(contents, prompt, len(before)))


def _failed(request_id: str, error: OmlxError) -> Failed:
    failed = Failed(
        request_id, error.code, error.message, error.param, retry_after_s=error.retry_after_s
    )
    if not isinstance(error, ContextOverflow):
        return failed
    return structs.replace(
        failed,
        prompt_tokens=error.prompt_tokens,
        max_context=error.max_context,
        at_least=error.at_least,
    )
