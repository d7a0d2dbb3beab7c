"""All events of one job put together: what a client has after the last chunk of a stream."""

from __future__ import annotations

from dataclasses import dataclass, field

from omlxd.ipc.messages import (
    Accepted,
    ChoiceEvent,
    Completed,
    Delta,
    Event,
    Failed,
    Finished,
    FinishReason,
    ReasoningDelta,
    TokenLogprob,
    ToolCallArguments,
    ToolCallBegin,
    ToolCallEnd,
    Usage,
)
from omlxd.ipc.vectors import Score, Vector


@dataclass(slots=True)
class Text:
    parts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.parts)


@dataclass(slots=True)
class Reasoning(Text):
    """What the model thought."""


@dataclass(slots=True)
class Call:
    """One tool call; `arguments` is JSON text. One that was `cut` comes out as that text."""

    name: str
    parts: list[str] = field(default_factory=list)
    cut: str = ""

    @property
    def arguments(self) -> str:
        return "".join(self.parts)


Block = Text | Reasoning | Call


@dataclass(slots=True)
class Choice:
    """One choice as it grows."""

    grown: list[Block] = field(default_factory=list)
    logprobs: list[TokenLogprob] | None = None
    reason: FinishReason | None = None
    stop_sequence: str | None = None

    @property
    def blocks(self) -> list[Block]:
        """Its parts in the order in which they came; texts side by side are one."""
        read: list[Block] = []
        for block in self.grown:
            shown = Text([block.cut]) if isinstance(block, Call) and block.cut else block
            last = read[-1] if read else None
            if type(shown) is Text and type(last) is Text:
                read[-1] = Text([*last.parts, *shown.parts])
            else:
                read.append(shown)
        return read

    @property
    def text(self) -> str:
        return "".join(block.text for block in self.blocks if type(block) is Text)

    @property
    def reasoning(self) -> str:
        return "".join(block.text for block in self.blocks if isinstance(block, Reasoning))

    @property
    def calls(self) -> list[Call]:
        return [block for block in self.blocks if isinstance(block, Call)]

    def begun(self, number: int) -> Call:
        """The call of this number, cut or not."""
        return [block for block in self.grown if isinstance(block, Call)][number]

    def say(self, kind: type[Text], text: str) -> None:
        """Goes on with the last block if it is of this kind."""
        if not text:
            return
        last = self.grown[-1] if self.grown else None
        if isinstance(last, Call) or type(last) is not kind:
            last = kind()
            self.grown.append(last)
        last.parts.append(text)


class Fold:
    """Owner of the choices of one job; every choice exists from the start."""

    def __init__(self, num_choices: int) -> None:
        self.choices = [Choice() for _ in range(num_choices)]
        self.prompt_tokens = 0  # as accepted: of a request that is only counted, nothing is used
        self.usage = Usage()
        self.vectors: dict[int, bytes] = {}  # by input
        self.scores: dict[int, float] = {}  # by document

    def add(self, event: Event) -> None:
        match event:
            case Accepted():
                self.prompt_tokens = event.prompt_tokens
            case Vector():
                self.vectors[event.index] = event.values
            case Score():
                self.scores[event.index] = event.score
            case Completed():
                self.usage = event.usage
            case Failed():
                raise AssertionError("a failure is raised, it is no part of an answer")
            case _:
                _add(event, self.choices[event.index])


def _add(event: ChoiceEvent, choice: Choice) -> None:
    match event:
        case Delta():
            choice.say(Text, event.text)
            if event.logprobs is not None:
                if choice.logprobs is None:
                    choice.logprobs = []
                choice.logprobs.extend(event.logprobs)
        case ReasoningDelta():
            choice.say(Reasoning, event.text)
        case ToolCallBegin():
            choice.grown.append(Call(event.name))
        case ToolCallArguments():
            choice.begun(event.call).parts.append(event.text)
        case ToolCallEnd():
            choice.begun(event.call).cut = event.cut
        case Finished():
            choice.reason, choice.stop_sequence = event.reason, event.stop_sequence
