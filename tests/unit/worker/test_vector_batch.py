"""Which inputs are computed together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from omlxd.worker.vector_batch import WINDOW, pick


@given(st.lists(st.integers(1, 600), min_size=1, max_size=400), st.integers(1, 5_000))
def test_a_batch_holds_the_oldest_and_fits(lengths: list[int], most: int) -> None:
    """Padded to its longest it has no more tokens than that, unless it is one input alone."""
    chosen = pick(lengths, most_tokens=most)
    assert 0 in chosen
    assert chosen == sorted(set(chosen))
    assert max(chosen) < WINDOW
    padded = len(chosen) * max(lengths[place] for place in chosen)
    assert padded <= most or len(chosen) == 1


def test_those_of_like_length_go_together() -> None:
    """A long one does not make many short ones longer."""
    assert pick([5, 500, 5, 6], most_tokens=512) == [0, 2, 3]
    assert pick([500, 5, 5, 480], most_tokens=1_000) == [0, 3]


@given(st.lists(st.integers(1, 600), min_size=1, max_size=60))
def test_all_are_served_in_the_end(lengths: list[int]) -> None:
    """Each batch takes the oldest, so no input waits for ever."""
    waiting = list(enumerate(lengths))
    served: list[int] = []
    while waiting:
        chosen = pick([length for _, length in waiting], most_tokens=700)
        served += [waiting[place][0] for place in chosen]
        waiting = [each for place, each in enumerate(waiting) if place not in chosen]
    assert sorted(served) == list(range(len(lengths)))
