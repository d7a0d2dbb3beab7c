"""Prompt tokens of a step follow from what steps have cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlxd.sched.pace import MIN_STEP_TOKENS, STALL_S, Pace

CAP = 256


def test_the_cap_is_used_while_nobody_decodes() -> None:
    """Without a stream to stall there is nothing to be careful for."""
    pace = Pace(decode_s=10, token_s=10)
    assert pace.step_tokens(cap=CAP, decoding_lanes=0) == CAP


def test_an_unmeasured_engine_starts_with_the_smallest_step() -> None:
    """The first prompt beside a stream runs 32 tokens, whatever they cost."""
    assert Pace().step_tokens(cap=CAP, decoding_lanes=1) == MIN_STEP_TOKENS
    assert Pace().step_tokens(cap=8, decoding_lanes=1) == 8


def test_the_step_fills_what_the_decode_leaves_of_the_stall() -> None:
    """At 2 ms a prompt token, 200 ms are 100 tokens."""
    pace = Pace(decode_s=STALL_S - 0.2, token_s=0.002)
    assert pace.step_tokens(cap=CAP, decoding_lanes=1) == pytest.approx(100, abs=1)


def test_every_lane_that_decodes_is_waited_for() -> None:
    """What two decodes leave is the prompt's: 150 ms here."""
    pace = Pace(decode_s=(STALL_S - 0.15) / 2, token_s=0.002)
    assert pace.step_tokens(cap=CAP, decoding_lanes=2) == pytest.approx(75, abs=1)


def test_a_decode_step_is_not_charged_to_the_prompt() -> None:
    """What a mixed step takes longer than a decode alone is the cost of its prompt tokens."""
    pace = Pace()
    pace.measured(seconds=0.05, prefill_tokens=0, decode_rows=1)
    pace.measured(seconds=0.25, prefill_tokens=100, decode_rows=1)
    assert pace.token_s == pytest.approx(0.002)


def test_a_step_without_rows_that_decode_says_nothing_about_decoding() -> None:
    """The step in which a prompt joins the batch runs no decode of its own."""
    pace = Pace()
    pace.measured(seconds=3.0, prefill_tokens=0, decode_rows=0)
    assert pace == Pace()


@given(
    decode_s=st.floats(0.001, 0.15),
    token_s=st.floats(0.0001, 0.02),
    growth=st.floats(1.0, 1.05),
)
def test_steps_settle_close_to_the_stall_while_the_prompt_gets_dearer(
    decode_s: float, token_s: float, growth: float
) -> None:
    """No step is much longer than the stall except by the floor, and none needlessly short."""
    pace = Pace(decode_s=decode_s)
    for step in range(30):
        tokens = pace.step_tokens(cap=100_000, decoding_lanes=1)
        seconds = decode_s + tokens * token_s
        if step > 8:
            assert seconds <= STALL_S * 1.15 or tokens == MIN_STEP_TOKENS
            assert seconds >= STALL_S * 0.8
        pace.measured(seconds=seconds, prefill_tokens=tokens, decode_rows=1)
        token_s *= growth
