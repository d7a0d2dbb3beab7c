"""From the tokens of one choice to its events.

UTF-8, then stop strings, then reasoning, then tool calls. Streams and whole replies are made from
the same events, so they are equal by construction.

A turn that ends inside its reasoning may have calls there, complete ones: the model took them for
its answer, so they are delivered at the end, as calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec import structs

from omlxd.ipc.messages import (
    ChoiceEvent,
    Delta,
    Finished,
    FinishReason,
    ReasoningDelta,
    ReasoningMode,
    TokenLogprob,
    ToolCallArguments,
    ToolCallBegin,
    ToolCallEnd,
)
from omlxd.worker.detokenize import Decoding
from omlxd.worker.logprobs import LogprobAligner, token_logprob
from omlxd.worker.output_format import OutputFormat
from omlxd.worker.ports import TokenOut
from omlxd.worker.reasoning import ReasoningSplitter, Said, Thought
from omlxd.worker.stops import Stopped, StopScanner
from omlxd.worker.tool_calls.pieces import Arguments, Began, Broken, Ended, Piece
from omlxd.worker.tool_calls.readers import call_reader
from omlxd.worker.tool_calls.splitter import CallSplitter

_INLINE_OPEN, _INLINE_CLOSE = "<think>\n", "\n</think>\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPlan:
    """How the output of one request is read. `form` is None for a raw prompt: all is text."""

    form: OutputFormat | None = None
    in_reasoning: bool = False  # the prompt has opened it
    reasoning: ReasoningMode = "separate"
    tools: Sequence[Mapping[str, Any]] = ()  # that may be called
    parallel: bool = True  # False: the first complete call ends the choice
    stops: Sequence[str] = ()
    echo: str = ""
    continues: bool = False  # the text goes on from the prompt: a leading blank counts
    has_logprobs: bool = False


class ChoiceOutput:
    """One choice of one request.

    A stop string, or a call that was to be the only one, ends it before the engine does: then the
    row has to be cancelled, and tokens that were under way are not to be fed.
    """

    def __init__(
        self, request_id: str, index: int, *, decoding: Decoding, plan: OutputPlan
    ) -> None:
        self.is_ended = False
        self.num_tokens = 0
        self.num_reasoning_tokens = 0
        self._request_id, self._index = request_id, index
        self._decoding, self._plan = decoding, plan
        self._detokenizer = decoding.detokenizer(at_start=not plan.continues)
        self._scanner = StopScanner(plan.stops)
        form = plan.form or OutputFormat()
        self._splitter = ReasoningSplitter(form, in_reasoning=plan.in_reasoning)
        self._calls = self._call_splitter() if plan.tools else None
        self._thoughts: list[str] = []  # kept only where calls may be in them
        self._logprobs = LogprobAligner() if plan.has_logprobs else None
        self._at_start = not plan.continues
        self._echo = plan.echo
        self._num_decoded = 0  # characters
        self._num_told = 0  # tokens
        self._num_calls = 0  # that began
        self._is_inline_open = False

    def feed(self, token: TokenOut) -> list[ChoiceEvent]:
        """What becomes visible with this token; `Finished` is the last event of all."""
        assert not self.is_ended, "a choice that ended is fed no more"
        self.num_tokens += 1
        was_thinking = self._splitter.is_thinking
        # A token that ended the row by "stop" is not part of the text.
        stopped = Stopped("") if token.finish == "stop" else self._scan(token)
        visible = stopped.text
        if stopped.stop is None and token.finish is not None:
            stopped = self._flush()
            visible += stopped.text
        reason: FinishReason | None = "stop" if stopped.stop is not None else token.finish
        events = self._read(visible, final=reason is not None)
        if reason == "stop" and self._splitter.is_thinking and stopped.stop is None:
            events += self._calls_in_thoughts()
        self.num_reasoning_tokens += was_thinking or self._splitter.is_thinking
        events = self._with_logprobs(events, visible, was_thinking=was_thinking)
        if reason is None and not self._plan.parallel and self._has_call:
            reason = "stop"
        if reason is not None:
            self.is_ended = True
            reason = "tool_calls" if self._has_call else reason
            events.append(Finished(self._request_id, self._index, reason, stopped.stop))
        return [*self._echoed(), *self._counted(events)]

    @property
    def _has_call(self) -> bool:
        return self._calls is not None and self._calls.num_complete > 0

    def _call_splitter(self) -> CallSplitter:
        form = self._plan.form or OutputFormat()
        return CallSplitter(form.calls.start, partial(call_reader, form, self._plan.tools))

    # ------------------------------------------------------------------ text

    def _scan(self, token: TokenOut) -> Stopped:
        text = self._detokenizer.feed(token.token)
        self._num_decoded += len(text)
        if self._logprobs is not None:
            # Of a character that is not complete yet, this token is a part.
            end = self._num_decoded + self._detokenizer.is_pending
            self._logprobs.add(self._logprob(token), end=end)
        return self._scanner.feed(text)

    def _flush(self) -> Stopped:
        stopped = self._scanner.feed(self._detokenizer.flush())
        if stopped.stop is not None:
            return stopped
        rest = self._scanner.flush()
        return Stopped(stopped.text + rest.text, rest.stop)

    # ------------------------------------------------------------------ events

    def _read(self, text: str, *, final: bool) -> list[ChoiceEvent]:
        events: list[ChoiceEvent] = []
        for part in self._splitter.feed(text, final=final):
            if isinstance(part, Thought):
                events += self._thought(part.text)
            else:
                events += self._answer(part.text)
        if final:
            events += self._answer("", final=True)
        return events

    def _answer(self, text: str, *, final: bool = False) -> list[ChoiceEvent]:
        if self._calls is None:
            return self._said(text)
        if self._has_call and not self._plan.parallel:
            return []
        events: list[ChoiceEvent] = []
        for part in self._calls.feed(text, final=final):
            events += self._said(part.text) if isinstance(part, Said) else self._piece(part)
            if isinstance(part, Ended) and not self._plan.parallel:
                break  # what follows the one call is not part of the reply
        return events

    def _said(self, text: str) -> list[ChoiceEvent]:
        if not text:
            return []
        close = _INLINE_CLOSE if self._is_inline_open else ""
        self._is_inline_open = False
        return [Delta(self._request_id, self._index, close + text, tokens=0)]

    def _thought(self, text: str) -> list[ChoiceEvent]:
        if self._calls is not None:
            self._thoughts.append(text)
        if self._plan.reasoning == "omit":
            return []
        if self._plan.reasoning == "separate":
            return [ReasoningDelta(self._request_id, self._index, text, tokens=0)]
        start = "" if self._is_inline_open else _INLINE_OPEN
        self._is_inline_open = True
        return [Delta(self._request_id, self._index, start + text, tokens=0)]

    def _piece(self, piece: Piece) -> list[ChoiceEvent]:
        name, index = self._request_id, self._index
        match piece:
            case Began():
                self._num_calls += 1
                return [ToolCallBegin(name, index, self._num_calls - 1, piece.name)]
            case Arguments():
                return [ToolCallArguments(name, index, self._num_calls - 1, piece.text)]
            case Ended():
                return [ToolCallEnd(name, index, self._num_calls - 1)]
            case Broken():
                return [ToolCallEnd(name, index, self._num_calls - 1, cut=piece.text)]

    def _calls_in_thoughts(self) -> list[ChoiceEvent]:
        if self._calls is None:
            return []
        calls = self._call_splitter()
        pieces = calls.feed("".join(self._thoughts), final=True)
        whole = [*_complete(pieces, parallel=self._plan.parallel)]
        if whole:
            self._calls = calls
        return [event for piece in whole for event in self._piece(piece)]

    def _echoed(self) -> Iterable[ChoiceEvent]:
        echo, self._echo = self._echo, ""
        return [Delta(self._request_id, self._index, echo, tokens=0)] if echo else []

    def _counted(self, events: list[ChoiceEvent]) -> list[ChoiceEvent]:
        """The first that can says how many tokens there were since the last that did."""
        for number, event in enumerate(events):
            if isinstance(event, ToolCallEnd | Finished):
                continue
            new, self._num_told = self.num_tokens - self._num_told, self.num_tokens
            return [*events[:number], structs.replace(event, tokens=new), *events[number + 1 :]]
        return events

    # ------------------------------------------------------------------ log-probabilities

    def _logprob(self, token: TokenOut) -> TokenLogprob:
        first, self._at_start = (
            self._at_start,
            self._at_start and not self._decoding.of(token.token),
        )
        names = [self._decoding.name(alternative) for alternative, _ in token.top]
        return token_logprob(token, shown=self._decoding.of(token.token, first=first), names=names)

    def _with_logprobs(
        self, events: list[ChoiceEvent], visible: str, *, was_thinking: bool
    ) -> list[ChoiceEvent]:
        """Those of tokens that are wholly visible; only what is said has any."""
        if self._logprobs is None:
            return events
        held = self._splitter.num_held + (self._calls.num_held if self._calls is not None else 0)
        entries = self._logprobs.show(len(visible), held=held)
        if was_thinking or self._splitter.is_thinking or not entries or (visible and not events):
            return events
        last = events[-1] if events else Delta(self._request_id, self._index, "", tokens=0)
        if not isinstance(last, Delta):
            return events
        return [*events[:-1], structs.replace(last, logprobs=entries)]


def _complete(pieces: Iterable[Said | Piece], *, parallel: bool) -> Iterable[Piece]:
    call: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, Said):
            continue
        call.append(piece)
        if isinstance(piece, Ended):
            yield from call
            if not parallel:
                return
        if isinstance(piece, Ended | Broken):
            call = []
