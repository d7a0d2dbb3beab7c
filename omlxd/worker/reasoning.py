"""What a model thinks before it answers, parted from the answer.

Reasoning is what stands between the model's marks where no answer has begun: at the start, if only
blanks come before, and right behind other reasoning. Marks in the answer itself are text. Reasoning
that is never closed stays reasoning. Newlines around it belong to the marks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from omlxd.worker.marks import scan
from omlxd.worker.output_format import OutputFormat


@dataclass(frozen=True, slots=True)
class Said:
    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    text: str


class ReasoningSplitter:
    """The text of one choice. `in_reasoning`: the prompt has opened it already."""

    def __init__(self, form: OutputFormat, *, in_reasoning: bool) -> None:
        self._form = form
        self._openers = tuple(filter(None, (form.think_start, *form.dropped)))
        self._state: Literal["before", "thinking", "answer"] = "before"
        if in_reasoning:
            self._state = "thinking"
        elif not self._openers:
            self._state = "answer"
        self._held = ""
        self._has_thought = in_reasoning
        self._is_fresh = in_reasoning  # nothing of this block was shown yet

    @property
    def is_thinking(self) -> bool:
        return self._state == "thinking"

    @property
    def num_held(self) -> int:
        """Characters that were fed and may yet be part of a mark."""
        return len(self._held)

    def feed(self, text: str, *, final: bool = False) -> list[Said | Thought]:
        """`final`: no more follows."""
        self._held += text
        parts: list[Said | Thought] = []
        steps = {"before": self._before, "thinking": self._think, "answer": self._answer}
        while steps[self._state](parts, final):
            pass
        return parts

    def _before(self, parts: list[Said | Thought], final: bool) -> bool:
        """Whether there is more to be done, as for the other states."""
        body = self._held.lstrip()
        scanned = scan(body, self._openers, final=final)
        if scanned.mark is not None and not scanned.text:
            self._held = scanned.rest
            if scanned.mark == self._form.think_start:
                self._state, self._is_fresh, self._has_thought = "thinking", True, True
            return True
        if not scanned.text and not final:  # blanks, or what may become a mark
            return False
        if self._has_thought:
            self._held = self._held.lstrip("\n")
        self._state = "answer"
        return True

    def _think(self, parts: list[Said | Thought], final: bool) -> bool:
        scanned = scan(self._held, (self._form.think_end,), final=final)
        text = scanned.text.lstrip("\n") if self._is_fresh else scanned.text
        shown = text.rstrip("\n")
        if shown:
            parts.append(Thought(shown))
            self._is_fresh = False
        if scanned.mark is not None:
            self._held, self._state = scanned.rest, "before"
            return True
        self._held = "" if final else text[len(shown) :] + scanned.rest
        return False

    def _answer(self, parts: list[Said | Thought], final: bool) -> bool:
        scanned = scan(self._held, self._form.dropped, final=final)
        if scanned.text:
            parts.append(Said(scanned.text))
        self._held = scanned.rest
        return scanned.mark is not None
