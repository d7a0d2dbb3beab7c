"""Where prefill pauses, and when what is in the caches is to be stored."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlxd.kv.types import Layout
from omlxd.sched.pauses import (
    STRIDE_TOKENS,
    decode_is_due,
    last_seen,
    plan_pauses,
    prefill_is_due,
)

KV = Layout(block_tokens=64, grows=True)
WINDOWED = Layout(block_tokens=64, grows=True, window=512)
RECURRENT = Layout(block_tokens=64, grows=True, recurrent=True)
LAYOUTS = st.sampled_from([KV, WINDOWED, RECURRENT])


def test_a_prompt_of_keys_and_values_pauses_at_strides_and_before_its_last_token() -> None:
    """Everything else can be cut out later."""
    assert plan_pauses(KV, start=0, total=3000) == (1024, 2048, 2999)


def test_a_recurrent_state_is_also_taken_at_the_last_boundary_and_where_others_part() -> None:
    """A reply is rarely sent back without a change in its last block."""
    assert plan_pauses(RECURRENT, start=0, total=3000, shared=[640]) == (
        640,
        1024,
        2048,
        2944,
        2999,
    )


def test_a_prompt_that_ends_on_a_boundary_pauses_a_block_earlier() -> None:
    """At its very end it is seen anyway, but one token too late for the same prompt."""
    assert plan_pauses(RECURRENT, start=0, total=256) == (192, 255)


def test_a_restored_prompt_pauses_at_the_strides_that_are_left() -> None:
    """Strides are counted from the first token, so that two turns agree on them."""
    assert plan_pauses(RECURRENT, start=1500, total=3000) == (2048, 2944, 2999)
    assert plan_pauses(RECURRENT, start=2999, total=3000) == ()


@given(
    layout=LAYOUTS,
    total=st.integers(1, 9000),
    restored=st.integers(0, 9000),
    shared=st.lists(st.integers(0, 9000), max_size=4),
)
def test_pauses_are_in_order_inside_the_run_and_never_far_apart(
    layout: Layout, total: int, restored: int, shared: list[int]
) -> None:
    """A dying worker loses at most a stride and what the stride does not divide."""
    start = min(restored, total - 1)
    points = [start, *plan_pauses(layout, start=start, total=total, shared=shared), total]
    assert points == sorted(set(points))
    assert all(b - a <= 2 * STRIDE_TOKENS for a, b in pairwise(points))


@pytest.mark.parametrize(
    ("layout", "computed", "due"),
    [
        (KV, 1024, True),
        (KV, 1100, False),
        (KV, 1151, False),  # before the last token: the first one of the reply comes first
        (KV, 1152, False),
        (WINDOWED, 1100, True),
        (WINDOWED, 1151, True),
        (WINDOWED, 1152, True),
        (RECURRENT, 1100, False),
        (RECURRENT, 1151, True),
        (RECURRENT, 1152, True),
    ],
)
def test_what_is_stored_while_a_prompt_of_1152_tokens_runs(
    layout: Layout, computed: int, due: bool
) -> None:
    """Windows at every chunk's end, states at pauses and at an end that is a boundary."""
    pauses = plan_pauses(layout, start=0, total=1152)
    assert prefill_is_due(layout, computed=computed, total=1152, pauses=pauses) is due


def test_in_a_reply_only_what_does_not_grow_is_stored_at_boundaries() -> None:
    """Keys and values are cut once, when it ends."""
    assert [decode_is_due(layout, 640) for layout in (KV, WINDOWED, RECURRENT)] == [
        False,
        True,
        True,
    ]
    assert not decode_is_due(RECURRENT, 641)


def test_of_a_recurrent_row_only_its_pauses_can_be_shared() -> None:
    """Others can be cut anywhere behind where they stand."""
    assert last_seen(KV, shared=1536, pauses=(1024, 2048)) == 1536
    assert last_seen(RECURRENT, shared=1536, pauses=(1024, 2048)) == 1024
    assert last_seen(RECURRENT, shared=640, pauses=(1024, 2048)) == 0
