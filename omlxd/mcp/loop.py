"""One reply that calls tools of ours: a run of the model, its calls, their results, the next run.

Pure. The client sees one reply: text and reasoning of all runs, a line of reasoning for each step,
and the usage of all runs together. A call of a tool that the client brought ends the reply, since
only the client can run it; calls of ours beside it are not run, since the model could not be told
what they gave. A call of ours that was cut comes out as its text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from omlxd.errors import RequestInvalid
from omlxd.ipc.messages import (
    Accepted,
    Completed,
    Delta,
    Event,
    Finished,
    FinishReason,
    GenerateRequest,
    ReasoningDelta,
    ToolCallArguments,
    ToolCallBegin,
    ToolCallEnd,
    ToolChoice,
    Usage,
)
from omlxd.mcp.tools import function
from omlxd.mcp.types import Offered, Result

MAX_CALLS = 16  # of one run; what is beyond is answered with an error
_SHOWN = 200  # characters of arguments and errors in the line of a step
_ID_DIGITS = 9  # as everywhere in a conversation


@dataclass(slots=True)
class Call:
    """One call of ours. `arguments` is JSON text."""

    offered: Offered
    call_id: str
    parts: list[str] = field(default_factory=list)

    @property
    def arguments(self) -> str:
        return "".join(self.parts)

    def decoded(self) -> dict[str, Any]:
        """Raises RequestInvalid."""
        try:
            value = msgspec.json.decode(self.arguments or "{}")
        except (msgspec.DecodeError, RecursionError) as error:
            raise RequestInvalid(f"the arguments are not JSON: {error}") from None
        if not isinstance(value, dict):
            raise RequestInvalid("the arguments are not a JSON object")
        return value


@dataclass(slots=True)
class _Run:
    """What the model has said since it was last asked."""

    said: list[str] = field(default_factory=list)
    thought: list[str] = field(default_factory=list)
    ours: dict[int, Call] = field(default_factory=dict)  # by the run's number of the call
    theirs: dict[int, int] = field(default_factory=dict)  # to the number the client sees
    finished: Finished | None = None


class ToolLoop:
    """`take` what a run says; then `answer` each of `calls`, and run `next_request`, if any."""

    def __init__(
        self,
        request: GenerateRequest,
        offered: Sequence[Offered],
        *,
        max_rounds: int,
        notes: Iterable[str] = (),
    ) -> None:
        """`notes` are told at the beginning. Raises RequestInvalid."""
        self._asked = request
        self._offered = {tool.name: tool for tool in offered}
        self._theirs = _names(request.tools) + _names(request.deferred_tools)
        for name in self._theirs:
            if name in self._offered:
                raise RequestInvalid(
                    f"tools: {name!r} is the name of a tool that omlxd runs; rename yours, or "
                    "leave its server out of mcp.",
                    param="tools",
                )
        self._max_rounds = max_rounds
        self._notes = [f"[{note}]\n" for note in notes]
        self._round = 0  # runs that ended with calls of ours
        self._run = _Run()
        self._answers: list[dict[str, Any]] = []
        self._used = Usage()
        self._first: Completed | None = None
        self._withheld = 0  # output tokens that no event has told of
        self._num_theirs = 0
        self._is_done = False
        ours = [function(tool) for tool in offered]
        self._request = msgspec.structs.replace(request, tools=[*request.tools, *ours])

    @property
    def request(self) -> GenerateRequest:
        """What to run first."""
        return self._request

    # -------------------------------------------------------------- a run

    def take(self, event: Event) -> list[Event]:
        """What the client is told of one event of a run."""
        match event:
            case Accepted():
                return self._accepted(event)
            case Delta():
                self._run.said.append(event.text)
            case ReasoningDelta():
                self._run.thought.append(event.text)
            case ToolCallBegin() | ToolCallArguments() | ToolCallEnd():
                return self._called(event)
            case Finished():
                self._run.finished = event
                return []
            case Completed():
                return self._completed(event)
        return [msgspec.structs.replace(event, request_id=self._id)]

    @property
    def calls(self) -> tuple[Call, ...]:
        """To be run now, one after the other, once a run has ended."""
        return () if self._is_done else tuple(self._run.ours.values())

    @property
    def _id(self) -> str:
        return self._asked.request_id

    def _accepted(self, event: Accepted) -> list[Event]:
        if self._round:
            return []
        told: list[Event] = [event]
        return told + [ReasoningDelta(self._id, 0, note, 0) for note in self._notes]

    def _called(self, event: ToolCallBegin | ToolCallArguments | ToolCallEnd) -> list[Event]:
        run, number = self._run, event.call
        if isinstance(event, ToolCallBegin):
            if (offered := self._offered.get(event.name)) is not None:
                run.ours[number] = Call(offered, self._next_id(len(run.ours)))
            else:
                run.theirs[number] = self._num_theirs
                self._num_theirs += 1
        if number in run.theirs:
            shown = msgspec.structs.replace(event, request_id=self._id, call=run.theirs[number])
            return [shown]
        if isinstance(event, ToolCallEnd):
            if not event.cut:
                return []
            del run.ours[number]
            run.said.append(event.cut)
            return [Delta(self._id, 0, event.cut, self._told_tokens())]
        self._withheld += event.tokens
        if isinstance(event, ToolCallArguments):
            run.ours[number].parts.append(event.text)
        return []

    def _completed(self, event: Completed) -> list[Event]:
        self._used = add(self._used, event.usage)
        self._first = self._first or event
        run = self._run
        assert run.finished is not None, "a run is complete before it finished"
        reason = run.finished.reason
        why = self._why_not_run(reason)
        if run.ours and not why:
            return []
        self._is_done = True
        told = [self._note(f"{call.offered.name} was not run: {why}") for call in run.ours.values()]
        if reason == "tool_calls" and not run.theirs:
            reason = "length" if self._is_spent() else "stop"
        finished = Finished(self._id, 0, reason, run.finished.stop_sequence)
        whole = msgspec.structs.replace(self._first, request_id=self._id, usage=self._used)
        return [*told, finished, whole]

    def _why_not_run(self, reason: FinishReason) -> str:
        """Why calls of ours at the end of a run are not run; "" = they are."""
        if reason == "aborted":
            return "the reply was given up"
        if self._run.theirs:
            return "the reply ends with a call that the client has to run"
        if self._round >= self._max_rounds:
            return f"the reply called tools {self._round} times (mcp.max_rounds)"
        return "the reply may have no more tokens" if self._is_spent() else ""

    # -------------------------------------------------------------- its calls

    def begin(self, call: Call) -> list[Event]:
        """What the client is told before a call is run."""
        return [self._note(f"{call.offered.name} {_short(call.arguments)}")]

    def answer(self, call: Call, result: Result) -> list[Event]:
        """What the client is told of a call's result; the model is given all of it."""
        text = f"Error: {result.text}" if result.is_error else result.text
        name = call.offered.name
        self._answers.append(
            {"role": "tool", "tool_call_id": call.call_id, "name": name, "content": text}
        )
        if result.is_error:
            return [self._note(f"{name} failed: {_short(result.text)}")]
        size = len(result.text.encode(errors="replace"))
        return [self._note(f"{name} gave {size:,} byte{'' if size == 1 else 's'}")]

    def next_request(self) -> GenerateRequest | None:
        """The next run, once all calls are answered; None = the reply is complete."""
        if self._is_done:
            return None
        self._round += 1
        request = self._request
        assert request.messages is not None, "tools are offered to conversations only"
        before, said = list(request.messages), "".join(self._run.said)
        if request.continue_final:  # the run went on with what the conversation ended with
            said = before.pop()["content"] + said
        self._request = msgspec.structs.replace(
            request,
            request_id=f"{self._id}-{self._round + 1}",
            messages=[*before, self._turn(said), *self._answers],
            tool_choice=self._next_choice(),
            max_tokens=self._tokens_left(),
            continue_final=False,
        )
        self._run, self._answers = _Run(), []
        return self._request

    def _turn(self, said: str) -> dict[str, Any]:
        """The run as a message."""
        calls = [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.offered.name, "arguments": call.arguments or "{}"},
            }
            for call in self._run.ours.values()
        ]
        message: dict[str, Any] = {"role": "assistant", "content": said, "tool_calls": calls}
        if self._run.thought:
            message["reasoning_content"] = "".join(self._run.thought)
        return message

    def _next_choice(self) -> ToolChoice:
        """A call that had to be made has been made; after the last round none of ours may be."""
        choice = self._asked.tool_choice
        if self._round < self._max_rounds:
            return msgspec.structs.replace(choice, mode="auto")
        names = [name for name in self._theirs if not choice.names or name in choice.names]
        if not names:
            return ToolChoice(mode="none")
        return msgspec.structs.replace(choice, mode="auto", names=names)

    def _tokens_left(self) -> int | None:
        limit = self._asked.max_tokens
        return None if limit is None else limit - self._used.output_tokens

    def _is_spent(self) -> bool:
        left = self._tokens_left()
        return left is not None and left <= 0

    def _next_id(self, offset: int) -> str:
        """Ids are numbers by position, so that they say nothing."""
        taken = [
            call["id"]
            for message in self._request.messages or ()
            for call in message.get("tool_calls", ())
        ]
        taken += [m["tool_call_id"] for m in self._request.messages or () if "tool_call_id" in m]
        last = max((int(one) for one in taken if one.isdecimal()), default=0)
        return f"{last + 1 + offset:0{_ID_DIGITS}}"

    def _note(self, text: str) -> ReasoningDelta:
        return ReasoningDelta(self._id, 0, f"\n[{text}]\n", self._told_tokens())

    def _told_tokens(self) -> int:
        withheld, self._withheld = self._withheld, 0
        return withheld


def add(one: Usage, other: Usage) -> Usage:
    return Usage(
        **{name: getattr(one, name) + getattr(other, name) for name in Usage.__struct_fields__}
    )


def _names(tools: Sequence[Mapping[str, Any]]) -> list[str]:
    return [tool["function"]["name"] for tool in tools]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"
