"""In every dialect a reply is the same however it arrives, in a stream or whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from anthropic.types import Message
from hypothesis import given
from hypothesis import strategies as st

from omlxd.api.ports import ServedModel
from omlxd.api.wire import anthropic, openai_chat, responses
from omlxd.api.wire.dialect import Call, Parse
from omlxd.api.wire.fold import Fold
from omlxd.ipc.messages import Event
from tests.support import sdk_folds
from tests.support.replies import R, arrivals, replies

CALL = Call(request_id=R, created=1, model=ServedModel(id="m", kind="llm"))
HI = [{"role": "user", "content": "hi"}]
NAMES = ("ls", "patch", "unknown")
LS = {"name": "ls"}


def message_of(choice: Mapping[str, Any]) -> dict[str, Any]:
    """A choice of a chat completion; a stream that says nothing has "" where null stands."""
    message = choice["message"]
    return {
        "content": message["content"] or "",
        "reasoning": message.get("reasoning_content"),
        "calls": [
            (call["id"], call["type"], call["function"]["name"], call["function"]["arguments"])
            for call in message.get("tool_calls") or []
        ],
        "function": message.get("function_call"),
        "reason": choice["finish_reason"],
    }


def completion(body: Mapping[str, Any]) -> dict[str, Any]:
    """What of a chat completion does not depend on the client's version."""
    kept = {key: body[key] for key in ("id", "created", "model")}
    usage = body["usage"]
    return {
        **kept,
        "choices": [message_of(choice) for choice in body["choices"]],
        "total": usage["total_tokens"],
        "cached": usage["prompt_tokens_details"]["cached_tokens"],
        "reasoning": usage["completion_tokens_details"]["reasoning_tokens"],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """How a dialect is asked, and what its official client has then, of a stream or at once."""

    parse: Parse
    body: Mapping[str, Any]
    of_stream: Callable[[bytes], Any]
    at_once: Callable[[Any], Any]
    num_choices: int = 1
    max_calls: int = 5  # whole ones, in one choice
    takes_back: bool = False  # a call that is cut was not sent yet, so it is text in a stream too


CHAT = Client(
    parse=openai_chat.parse,
    body={
        "messages": HI,
        "tools": [{"type": "function", "function": LS}],
        "n": 2,
        "stream_options": {"include_usage": True},
    },
    of_stream=lambda raw: completion(sdk_folds.chat(raw)),
    at_once=completion,
    num_choices=2,
)
FUNCTIONS = Client(
    parse=openai_chat.parse,
    body={"messages": HI, "functions": [LS], "stream_options": {"include_usage": True}},
    of_stream=lambda raw: completion(sdk_folds.chat(raw)),
    at_once=completion,
    max_calls=1,
    takes_back=True,
)
MESSAGES = Client(
    parse=anthropic.parse,
    body={"messages": HI, "tools": [LS], "thinking": {"type": "adaptive"}},
    of_stream=lambda raw: sdk_folds.message(sdk_folds.named_frames(raw)),
    at_once=Message.model_validate,
)
RESPONSES = Client(
    parse=responses.parse,
    body={"input": "hi", "tools": [{"type": "custom", "name": "patch"}]},
    of_stream=lambda raw: sdk_folds.response(sdk_folds.named_frames(raw)),
    at_once=dict,
)
CLIENTS = pytest.mark.parametrize(
    "client",
    [CHAT, FUNCTIONS, MESSAGES, RESPONSES],
    ids=["chat", "functions", "messages", "responses"],
)


def streamed(client: Client, events: list[Event]) -> Any:
    renderer = client.parse(client.body, CALL).renderer
    return client.of_stream(b"".join(renderer.event(event) for event in events))


def whole(client: Client, events: list[Event]) -> Any:
    fold = Fold(client.num_choices)
    for event in events:
        fold.add(event)
    result = client.parse(client.body, CALL).renderer.result(fold)
    return client.at_once(msgspec.json.decode(result))


def two_arrivals(data: st.DataObject, client: Client, *, may_cut: bool) -> list[list[Event]]:
    """The same reply twice, in other pieces and another order."""
    wanted = replies(NAMES, max_calls=client.max_calls, may_cut=may_cut)
    choices = [data.draw(wanted) for _ in range(client.num_choices)]
    return [data.draw(arrivals(choices)) for _ in range(2)]


@CLIENTS
@given(data=st.data())
def test_any_pieces_make_the_same_reply(client: Client, data: st.DataObject) -> None:
    """Whole and in a stream, also where a call was cut."""
    one, other = two_arrivals(data, client, may_cut=True)
    assert whole(client, one) == whole(client, other)
    assert streamed(client, one) == streamed(client, other)


@CLIENTS
@given(data=st.data())
def test_a_stream_makes_the_whole_reply(client: Client, data: st.DataObject) -> None:
    """What the official client puts together is what it is given at once, all calls included."""
    events, _ = two_arrivals(data, client, may_cut=client.takes_back)
    assert streamed(client, events) == whole(client, events)
