"""Rows that wait until another row has computed what both begin with.

Only a row that prefills is waited for, and it does not wait itself: so nobody waits in a circle.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from omlxd.sched.rows import RowKey

MIN_BLOCKS = 2  # less is not worth a wait


@dataclass(frozen=True, slots=True)
class _Wait:
    donor: RowKey
    until: int  # tokens that the donor has to have computed


class Sharing:
    def __init__(self) -> None:
        self._waits: dict[RowKey, _Wait] = {}

    def wait(self, key: RowKey, donor: RowKey, *, until: int) -> None:
        assert key not in self._waits, key
        assert donor not in self._waits, donor
        self._waits[key] = _Wait(donor, until)

    def passed(self, donor: RowKey, computed: int) -> list[RowKey]:
        """The donor has computed so many tokens: these need not wait any longer."""
        return self._end(
            key
            for key, wait in self._waits.items()
            if wait.donor == donor and wait.until <= computed
        )

    def left(self, key: RowKey) -> list[RowKey]:
        """The row ended or went back to the line: it waits no more, nor does anyone for it."""
        self._waits.pop(key, None)
        return self._end(each for each, wait in self._waits.items() if wait.donor == key)

    def _end(self, keys: Iterable[RowKey]) -> list[RowKey]:
        ended = list(keys)
        for key in ended:
            del self._waits[key]
        return ended


def pays(*, until: int, computed: int, restorable: int, block_tokens: int) -> bool:
    """Whether to wait for a row that has `computed` tokens and will have `until` of one's own.

    Beside each other both run at half the speed at best. If the other still has more to run than
    it would save, going alone is as quick.
    """
    return until - restorable >= MIN_BLOCKS * block_tokens and computed >= restorable
