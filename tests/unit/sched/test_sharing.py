"""Who waits for whose prompt, and for how long."""

from __future__ import annotations

import pytest

from omlxd.sched.rows import RowKey
from omlxd.sched.sharing import Sharing, pays

A, B, C, D = (RowKey(name, 0) for name in "abcd")


def test_rows_wait_until_the_other_has_passed_what_they_share() -> None:
    """Each for its own share; each is let go once."""
    sharing = Sharing()
    sharing.wait(B, A, until=128)
    sharing.wait(C, A, until=256)
    assert sharing.passed(A, 127) == []
    assert sharing.passed(A, 130) == [B]
    assert sharing.passed(A, 300) == [C]
    assert sharing.passed(A, 400) == []


def test_rows_are_let_go_when_the_other_leaves() -> None:
    """Whatever the reason, and only those that waited for it."""
    sharing = Sharing()
    sharing.wait(B, A, until=128)
    sharing.wait(C, D, until=128)
    assert sharing.left(A) == [B]
    assert sharing.left(A) == []
    assert sharing.left(D) == [C]


def test_a_row_that_leaves_waits_no_more() -> None:
    """Its donor's progress does not bring it back."""
    sharing = Sharing()
    sharing.wait(B, A, until=128)
    assert sharing.left(B) == []
    assert sharing.passed(A, 200) == []


def test_nobody_waits_for_a_row_that_waits() -> None:
    """So there is no circle."""
    sharing = Sharing()
    sharing.wait(B, A, until=128)
    with pytest.raises(AssertionError):
        sharing.wait(C, B, until=128)
    with pytest.raises(AssertionError):
        sharing.wait(B, D, until=128)


@pytest.mark.parametrize(
    ("until", "computed", "restorable", "worth"),
    [
        (128, 0, 0, True),
        (127, 0, 0, False),  # less than two blocks
        (640, 256, 256, True),
        (640, 192, 256, False),  # the other has more to run than it saves
        (256, 512, 256, False),  # nothing to gain
        (512, 600, 256, True),  # computed already
    ],
)
def test_a_wait_has_to_pay(until: int, computed: int, restorable: int, worth: bool) -> None:
    """Two blocks saved at least, by a row that is not behind."""
    assert pays(until=until, computed=computed, restorable=restorable, block_tokens=64) is worth
