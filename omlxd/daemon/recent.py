"""The last requests and what the prefix cache did for them, for `omlxctl why`."""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass, replace

from omlxd.api.ports import RequestRecord
from omlxd.errors import NotFound
from omlxd.ipc.messages import PrefixMatch

CAPACITY = 500
# A response's own id is the request's with another prefix (chatcmpl-…, cmpl-…, msg_…), and each of
# several prompts of one request has a number at the end.
_AROUND = re.compile(r"^[a-z]+[-_]|-[0-9]+$")


@dataclass(frozen=True, slots=True)
class PastRequest:
    """`record` is None while it has not ended, `match` if it never got as far."""

    match: PrefixMatch | None = None
    record: RequestRecord | None = None
    ended_at: float = 0.0  # Unix seconds


class RecentRequests:
    """Owned by the gateway; the oldest are forgotten."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._past: OrderedDict[str, PastRequest] = OrderedDict()

    def matched(self, request_id: str, match: PrefixMatch) -> None:
        """Of several prompts the first one counts."""
        past = self._get(request_id)
        self._put(request_id, past if past.match else replace(past, match=match))

    def ended(self, record: RequestRecord, now: float) -> None:
        past = replace(self._get(record.request_id), record=record, ended_at=now)
        self._put(record.request_id, past)

    def find(self, name: str) -> tuple[str, PastRequest]:
        """By the request's id or its response's; raises NotFound."""
        past = self._past.get(_core(name))
        if past is None:
            raise NotFound(
                f"no request {name!r} among the last {self._capacity}; the log has the ids of "
                "all: omlxctl logs --type request"
            )
        return f"req_{_core(name)}", past

    def _get(self, request_id: str) -> PastRequest:
        return self._past.get(_core(request_id), PastRequest())

    def _put(self, request_id: str, past: PastRequest) -> None:
        self._past[_core(request_id)] = past
        self._past.move_to_end(_core(request_id))
        while len(self._past) > self._capacity:
            self._past.popitem(last=False)


def _core(request_id: str) -> str:
    return _AROUND.sub("", request_id)
