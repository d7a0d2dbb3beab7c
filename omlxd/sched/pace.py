"""How many prompt tokens one step may run, from what steps have cost so far.

While nobody decodes, a step takes the cap. While somebody does, it takes what fits into
`STALL_S` beside the decode itself, and never less than `MIN_STEP_TOKENS`.
"""

from __future__ import annotations

from dataclasses import dataclass

STALL_S = 0.28  # a running stream waits about this long when someone else's prompt is run
MIN_STEP_TOKENS = 32  # below this a step costs nearly the same and prefill starves
DECODE_WEIGHT = 0.3
PREFILL_WEIGHT = 0.5  # higher: the cost of a prompt token grows while its prompt is run


@dataclass(slots=True)
class Pace:
    """Measured costs; None until measured. Token counts are rows x width, padding included."""

    decode_s: float | None = None  # one decode step of the present batch
    token_s: float | None = None  # one prompt token

    def measured(self, *, seconds: float, prefill_tokens: int, decode_rows: int) -> None:
        """Take in one step."""
        if prefill_tokens == 0:
            if decode_rows:
                self.decode_s = _mixed(self.decode_s, seconds, DECODE_WEIGHT)
            return
        decode_s = (self.decode_s or 0.0) if decode_rows else 0.0
        # A step shorter than the usual decode says nothing finer than "prefill is cheap".
        token_s = max(seconds - decode_s, seconds * 0.1) / prefill_tokens
        self.token_s = _mixed(self.token_s, token_s, PREFILL_WEIGHT)

    def step_tokens(self, *, cap: int, decoding_lanes: int) -> int:
        """Prompt tokens of the next step, over all rows that prefill together.

        Lanes are stepped one after the other, so a stream waits for the decode of each.
        """
        if decoding_lanes == 0:
            return cap
        if not self.token_s:
            return min(MIN_STEP_TOKENS, cap)
        fitting = int((STALL_S - decoding_lanes * (self.decode_s or 0.0)) / self.token_s)
        return min(max(fitting, MIN_STEP_TOKENS), cap)


def _mixed(old: float | None, new: float, weight: float) -> float:
    return new if old is None else old + weight * (new - old)
