"""All events of one job put together: what a client has after the last chunk of a stream."""

from __future__ import annotations

from dataclasses import dataclass, field

from omlxd.ipc.messages import (
    Completed,
    Delta,
    Event,
    Finished,
    FinishReason,
    TokenLogprob,
    Usage,
)


@dataclass(slots=True)
class Choice:
    """One choice as it grows."""

    parts: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] | None = None
    reason: FinishReason | None = None
    stop_sequence: str | None = None

    @property
    def text(self) -> str:
        return "".join(self.parts)


class Fold:
    """Owner of the choices of one job; every choice exists from the start."""

    def __init__(self, num_choices: int) -> None:
        self.choices = [Choice() for _ in range(num_choices)]
        self.usage = Usage()

    def add(self, event: Event) -> None:
        if isinstance(event, Delta):
            choice = self.choices[event.index]
            choice.parts.append(event.text)
            if event.logprobs is not None:
                if choice.logprobs is None:
                    choice.logprobs = []
                choice.logprobs.extend(event.logprobs)
        elif isinstance(event, Finished):
            choice = self.choices[event.index]
            choice.reason, choice.stop_sequence = event.reason, event.stop_sequence
        elif isinstance(event, Completed):
            self.usage = event.usage
