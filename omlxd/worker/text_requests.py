"""The requests of one engine, from acceptance to their terminal event.

Every accepted request gets exactly one terminal event, and none after it was cancelled. What the
engine still had under way for a choice that ended, or a request that is gone, is ignored: so a
request id is not used twice in the life of a worker.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from omlxd.errors import ContextOverflow, EngineFailed, OmlxError, QueueFull, RequestInvalid
from omlxd.ipc.messages import (
    Accepted,
    Completed,
    Event,
    Failed,
    Finished,
    GenerateRequest,
    LiveSettings,
    Usage,
)
from omlxd.worker.accept import AcceptedRequest, accept
from omlxd.worker.ports import Engine, RowUsage, TokenOut
from omlxd.worker.text_model import TextModel
from omlxd.worker.text_output import ChoiceOutput


@dataclass(slots=True)
class _Request:
    prompt_tokens: int
    choices: list[ChoiceOutput]
    accepted_at: float
    scheduled_at: float | None = None
    usage: dict[int, RowUsage] = field(default_factory=dict)  # by choice


class Requests:
    """Owned by the text thread. Times are monotonic seconds; the events returned are to be sent."""

    def __init__(self, engine: Engine, *, model: TextModel, live: LiveSettings) -> None:
        self._engine, self._model, self._live = engine, model, live
        self._open: dict[str, _Request] = {}
        self.batches = True  # False = the engine runs one request at a time

    def configure(self, live: LiveSettings) -> None:
        """For the next requests; running ones keep what they were accepted with."""
        self._live = live
        self._engine.configure(live)

    def submit(self, request: GenerateRequest, *, now: float) -> list[Event]:
        """`Accepted`, or `Failed` with the reason."""
        try:
            if request.request_id in self._open:
                raise RequestInvalid(f"request {request.request_id} is running already")
            self._check_queue(request.model)
            accepted = accept(request, model=self._model, live=self._live)
        except OmlxError as error:
            return [_failed(request.request_id, error)]
        except Exception as error:
            # Templates and tokenizers are the model's code: a failure there is this request's.
            traceback.print_exc(file=sys.stderr)
            return [_failed(request.request_id, EngineFailed(f"not tokenised: {error!r}"))]
        self._open[request.request_id] = _Request(
            prompt_tokens=accepted.prompt_tokens,
            choices=self._choices(request, accepted),
            accepted_at=now,
        )
        self._engine.submit(accepted.rows)
        return [Accepted(request.request_id, accepted.prompt_tokens)]

    def cancel(self, request_id: str) -> None:
        """What is held back for the request goes too; unknown ids are ignored."""
        if self._open.pop(request_id, None) is not None:
            self._engine.cancel(request_id)

    def on_scheduled(self, request_id: str, *, at: float) -> None:
        request = self._open.get(request_id)
        if request is not None and request.scheduled_at is None:
            request.scheduled_at = at

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
        return [event for request_id in list(self._open) for event in self.fail(request_id, error)]

    def _on_token(self, token: TokenOut, request: _Request) -> list[Event]:
        choice = request.choices[token.index]
        if choice.is_ended:
            return []
        events: list[Event] = [*choice.feed(token)]
        if not events or not isinstance(events[-1], Finished):
            return events
        if token.finish is None:  # a stop string: the engine does not know yet
            self._engine.cancel(token.request_id, token.index)
        if all(choice.is_ended for choice in request.choices):
            del self._open[token.request_id]
            events.append(_completed(token.request_id, request))
        return events

    def _check_queue(self, model: str) -> None:
        waiting = sum(request.scheduled_at is None for request in self._open.values())
        slots = self._live.max_concurrent_requests if self.batches else 1
        free = max(0, slots - (len(self._open) - waiting))
        if waiting >= self._live.max_queue + free:
            raise QueueFull(
                f"{waiting} requests wait for {model} already; try again later, or raise"
                " scheduler.max_queue"
            )

    def _choices(self, request: GenerateRequest, accepted: AcceptedRequest) -> list[ChoiceOutput]:
        return [
            ChoiceOutput(
                request.request_id,
                row.index,
                decoding=self._model.decoding,
                stops=request.stop,
                echo=accepted.echo,
                continues=request.prompt is not None or request.continue_final,
                has_logprobs=request.top_logprobs is not None,
            )
            for row in accepted.rows
        ]


def _completed(request_id: str, request: _Request) -> Completed:
    # All choices have the same prompt: the one that ran most of it tells where it came from.
    paid = max(
        request.usage.values(),
        key=lambda usage: usage.computed,
        default=RowUsage(request_id, 0),
    )
    usage = Usage(
        prompt_tokens=request.prompt_tokens,
        output_tokens=sum(choice.num_tokens for choice in request.choices),
        cached_tokens=paid.cached_ram + paid.cached_ssd,
        ram=paid.cached_ram,
        ssd=paid.cached_ssd,
        computed=paid.computed,
    )
    scheduled_at = request.accepted_at if request.scheduled_at is None else request.scheduled_at
    return Completed(request_id, usage, queue_ms=(scheduled_at - request.accepted_at) * 1000)


def _failed(request_id: str, error: OmlxError) -> Failed:
    numbers = (
        {"prompt_tokens": error.prompt_tokens, "max_context": error.max_context}
        if isinstance(error, ContextOverflow)
        else {}
    )
    return Failed(request_id, error.code, error.message, error.param, **numbers)
