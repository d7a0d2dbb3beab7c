"""The last requests, for `omlxctl why`."""

from __future__ import annotations

import pytest

from omlxd.api.ports import RequestRecord
from omlxd.daemon.recent import RecentRequests
from omlxd.errors import NotFound
from omlxd.ipc.messages import PrefixMatch

ID = "req_0123456789abcdef01234567"


def test_record_and_match_come_together() -> None:
    """What the worker said of the prompt and what the request became are one entry."""
    recent = RecentRequests()
    recent.matched(ID, PrefixMatch(ram=7))
    request_id, past = recent.find(ID)
    assert (request_id, past.match, past.record) == (ID, PrefixMatch(ram=7), None)
    recent.ended(RequestRecord(ID, "completions"), now=5.0)
    _, past = recent.find(ID)
    assert past.match == PrefixMatch(ram=7)
    assert past.record is not None
    assert (past.record.api, past.ended_at) == ("completions", 5.0)


@pytest.mark.parametrize("name", ["0123456789abcdef01234567", "chatcmpl-0123456789abcdef01234567"])
def test_a_response_id_finds_its_request(name: str) -> None:
    """Clients see the response's id, which is the request's with another prefix."""
    recent = RecentRequests()
    recent.ended(RequestRecord(ID, "completions"), now=0.0)
    assert recent.find(name)[0] == ID


def test_of_several_prompts_the_first_one_counts() -> None:
    """A completion request with many prompts is one request."""
    recent = RecentRequests()
    recent.matched(f"{ID}-0", PrefixMatch(ram=1))
    recent.matched(f"{ID}-1", PrefixMatch(ram=2))
    recent.ended(RequestRecord(ID, "completions"), now=0.0)
    assert recent.find(ID)[1].match == PrefixMatch(ram=1)


def test_the_oldest_are_forgotten() -> None:
    """There is room for so many; an entry that changes is as new as one that comes."""
    recent = RecentRequests(capacity=2)
    for name in ("req_a", "req_b"):
        recent.matched(name, PrefixMatch())
    recent.ended(RequestRecord("req_a", "x"), now=0.0)
    recent.matched("req_c", PrefixMatch())
    assert recent.find("req_a")
    assert recent.find("req_c")
    with pytest.raises(NotFound, match="'req_b' among the last 2"):
        recent.find("req_b")
