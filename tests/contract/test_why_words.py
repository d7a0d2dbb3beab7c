"""What the cache core says in a word or two, `omlxctl why` explains."""

from __future__ import annotations

from omlxctl.whyview import REASONS
from omlxd.kv.plans import WHY_NOT_MORE


def test_every_word_is_explained_and_no_other() -> None:
    """Neither side may import the other, so this holds them together."""
    assert set(REASONS) == set(WHY_NOT_MORE)
