"""Why entries are not there any more, for as long as that is worth telling."""

from __future__ import annotations

from collections import OrderedDict
from typing import Literal

from omlxd.kv.types import EntryKey

WhyGone = Literal["evicted", "on disk, unreadable"]

MOST = 65_536  # about 10 MB


class Gone:
    """The newest `MOST` of what went and was not stored again."""

    def __init__(self) -> None:
        self._why: OrderedDict[EntryKey, WhyGone] = OrderedDict()

    def __len__(self) -> int:
        return len(self._why)

    def get(self, key: EntryKey) -> WhyGone | None:
        return self._why.get(key)

    def went(self, key: EntryKey, why: WhyGone) -> None:
        self._why[key] = why
        self._why.move_to_end(key)
        if len(self._why) > MOST:
            self._why.popitem(last=False)

    def came(self, key: EntryKey) -> None:
        self._why.pop(key, None)

    def clear(self) -> None:
        self._why.clear()
