"""Bodies of real clients against the whole stack: every one is answered, and keeps its prefix."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import msgspec
import pytest

from tests.conftest import MakeScripted
from tests.support.client_bodies import client_bodies
from tests.support.daemon import Daemon, config

pytestmark = pytest.mark.e2e

PATHS = {
    "anthropic": "/v1/messages",
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
}
HISTORY = {"anthropic": "messages", "chat": "messages", "responses": "input"}
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
ENDS = {
    "anthropic": ("event: message_stop",),
    "chat": ("data: [DONE]",),
    "responses": ("event: response.completed", "event: response.incomplete"),
}
BLOCK_TOKENS = 64
ALL = [(dialect, name) for dialect in PATHS for name in sorted(client_bodies(dialect))]
LONGEST = [(dialect, name) for dialect, name in ALL if "third_turn" in name]


@pytest.fixture(scope="module")
def url(shared_home: Path, scripted_model: MakeScripted) -> Iterator[str]:
    """A daemon whose model says one word to everybody."""
    with Daemon(shared_home, config(scripted_model({"~": ["ok"]}).parent)) as running:
        running.until(lambda s: len(s["models"]) == 1, "the model discovered")
        yield running.until_listening()


def post(url: str, body: dict[str, Any]) -> str:
    """The answer's text; raises HTTPError for any status but a 2xx."""
    headers = {"content-type": "application/json", "anthropic-version": "2023-06-01"}
    with urlopen(Request(url, msgspec.json.encode(body), headers), timeout=60) as answer:
        return str(answer.read().decode())


def ours(body: dict[str, Any], **more: Any) -> dict[str, Any]:
    short = {key: 4 for key in LIMITS if key in body}
    return {**body, **short, "model": "scripted", **more}


@pytest.mark.parametrize(("dialect", "name"), ALL)
def test_every_body_is_answered(url: str, dialect: str, name: str) -> None:
    """With a stream that ends as its client expects, or an object."""
    if "count_tokens" in name:
        counted = post(f"{url}/v1/messages/count_tokens", ours(client_bodies(dialect)[name]))
        assert msgspec.json.decode(counted)["input_tokens"] > 0
        return
    body = ours(client_bodies(dialect)[name])
    answer = post(f"{url}{PATHS[dialect]}?beta=true", body)
    if body.get("stream"):
        assert answer.rstrip().split("\n\n")[-1].startswith(ENDS[dialect])
    else:
        assert msgspec.json.decode(answer)["usage"]


@pytest.mark.parametrize(("dialect", "name"), LONGEST)
def test_the_next_turn_finds_the_one_before(url: str, dialect: str, name: str) -> None:
    """Of each turn's prompt all whole blocks, whatever the client changed in between."""
    sizes: list[tuple[int, int]] = []
    for turn in turns(client_bodies(dialect)[name], HISTORY[dialect]):
        body = ours(turn, stream=False)
        body.pop("stream_options", None)
        answer = msgspec.json.decode(post(f"{url}{PATHS[dialect]}", body))
        sizes.append(size_of(answer["usage"]))
    assert len(sizes) > 1
    for (before, _), (_, cached) in pairwise(sizes):
        assert cached >= before // BLOCK_TOKENS * BLOCK_TOKENS


def turns(body: dict[str, Any], key: str) -> Iterator[dict[str, Any]]:
    """The bodies that led to this one: its history up to each reply, and all of it."""
    history = body[key]
    was_reply = False
    for number, entry in enumerate(history):
        is_reply = entry.get("role") == "assistant" or entry.get("type") in (
            "reasoning",
            "function_call",
            "custom_tool_call",
        )
        if is_reply and not was_reply:
            yield {**body, key: history[:number]}
        was_reply = is_reply
    if not was_reply:
        yield body


def size_of(usage: dict[str, Any]) -> tuple[int, int]:
    """Tokens of the prompt, and those of them that were cached."""
    if "cache_read_input_tokens" in usage:
        cached = usage["cache_read_input_tokens"] or 0
        return usage["input_tokens"] + cached, cached
    details = usage.get("prompt_tokens_details") or usage["input_tokens_details"]
    return usage.get("prompt_tokens") or usage["input_tokens"], details["cached_tokens"] or 0
