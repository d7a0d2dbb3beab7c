"""Tools, reasoning and form through the whole stack, with a model whose output is known."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessage

from tests.conftest import MakeScripted
from tests.support.daemon import Daemon, config

pytestmark = pytest.mark.e2e

# A piece may stand once over all scripts, and a mark goes on in one way only.
SCRIPTS = {
    # Reasoning, text, and two calls of which a string holds what would end one.
    "A": [
        "<think>",
        "\nI will",
        " look.",
        "\n",
        "</think>",
        "\n\n",
        "Looking",
        " now",
        ".",
        "\n<tool_",
        'call>\n{"name": "wri',
        'te", "argu',
        'ments": {"path": "a", "text": "</tool_',
        "call> č",
        ' \\n"}}\n</tool_ca',
        "ll>\n<tool_call",
        '>\n{"name": "ls", "arguments": {}}\n</tool_call>',
    ],
    "B": ["<tool", '_call>{"name": "format_disk", "arguments": {}}</tool_call> it is'],
    "C": ["<too", 'l_call>\n{"name": "ls", "arguments": {"path": "/a/very/long', "/path", '"}}'],
}
PATH, TEXT = "a", "</tool_call> č \n"
WRITE = {"path": PATH, "text": TEXT}


def schema(*names: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}}


PARAMETERS = {"write": schema("path", "text"), "ls": schema("path")}
CHAT_TOOLS: Any = [
    {"type": "function", "function": {"name": name, "parameters": parameters}}
    for name, parameters in PARAMETERS.items()
]
MESSAGE_TOOLS: Any = [
    {"name": name, "input_schema": parameters} for name, parameters in PARAMETERS.items()
]


@pytest.fixture(scope="module")
def daemon(shared_home: Path, scripted_model: MakeScripted) -> Iterator[Daemon]:
    """Serves the scripted model."""
    with Daemon(shared_home, config(scripted_model(SCRIPTS).parent)) as running:
        running.until(lambda s: len(s["models"]) == 1, "the model discovered")
        yield running


@pytest.fixture
async def chat(daemon: Daemon) -> AsyncIterator[AsyncOpenAI]:
    url = f"{daemon.until_listening()}/v1"
    async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as sdk:
        yield sdk


@pytest.fixture
async def messages(daemon: Daemon) -> AsyncIterator[AsyncAnthropic]:
    url = daemon.until_listening()
    async with AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as sdk:
        yield sdk


def asked(text: str, **more: Any) -> dict[str, Any]:
    said = [{"role": "user", "content": text}]
    return {"model": "scripted", "messages": said, "tools": CHAT_TOOLS, **more}


async def both(sdk: AsyncOpenAI, **body: Any) -> tuple[ChatCompletionMessage, str]:
    """Message and finish reason, which are the same in a stream and whole."""
    [whole] = (await sdk.chat.completions.create(**body)).choices
    async with sdk.chat.completions.stream(**body) as stream:
        [streamed] = (await stream.get_final_completion()).choices
    assert whole.finish_reason == streamed.finish_reason
    assert (whole.message.content or "") == (streamed.message.content or "")
    assert reasoning(whole.message) == reasoning(streamed.message)
    assert calls(whole.message) == calls(streamed.message)
    return whole.message, whole.finish_reason


def reasoning(message: Any) -> str:
    return getattr(message, "reasoning_content", None) or ""


def calls(message: Any) -> list[tuple[str, Any]]:
    made = message.tool_calls or []
    assert len({call.id for call in made}) == len(made)
    return [(call.function.name, json.loads(call.function.arguments)) for call in made]


async def test_reasoning_text_and_calls_in_chat(chat: AsyncOpenAI) -> None:
    """All three apart, in a stream as in one piece, and exact to the byte."""
    message, reason = await both(chat, **asked("A"))
    assert reasoning(message) == "I will look."
    assert message.content == "Looking now."
    assert calls(message) == [("write", WRITE), ("ls", {})]
    assert reason == "tool_calls"


async def test_one_call_only(chat: AsyncOpenAI) -> None:
    """The turn ends with it."""
    message, reason = await both(chat, **asked("A", parallel_tool_calls=False))
    assert (calls(message), reason) == ([("write", WRITE)], "tool_calls")


async def test_a_tool_round(chat: AsyncOpenAI) -> None:
    """The conversation with calls and results goes on, from its cached prefix."""
    first = await chat.chat.completions.create(**asked("word " * 60 + "A"))
    said = first.choices[0].message.to_dict()
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": "done"}
        for call in said["tool_calls"]  # type: ignore[attr-defined]
    ]
    history = [{"role": "user", "content": "word " * 60 + "A"}, said, *results]
    asked_next = asked("") | {"messages": [*history, {"role": "user", "content": "B"}]}
    second = await chat.chat.completions.create(**asked_next)
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    cached = second.usage.prompt_tokens_details.cached_tokens or 0
    assert cached >= first.usage.prompt_tokens - 64


async def test_an_unknown_tool_is_text(chat: AsyncOpenAI) -> None:
    """Nobody could run it, and nothing of it is lost."""
    message, reason = await both(chat, **asked("B"))
    assert message.content == "".join(SCRIPTS["B"])
    assert (calls(message), reason) == ([], "stop")


async def test_without_tools_markup_is_text(chat: AsyncOpenAI) -> None:
    """And with tools that must not be called."""
    for body in (asked("C", tools=[]), asked("C", tool_choice="none")):
        if not body["tools"]:
            del body["tools"]
        message, reason = await both(chat, **body)
        assert (message.content, reason) == ("".join(SCRIPTS["C"]), "stop")


async def test_a_call_without_its_end_mark_counts_and_a_cut_one_does_not(
    chat: AsyncOpenAI,
) -> None:
    """What is complete can be run; half a call is text in a whole reply."""
    message, reason = await both(chat, **asked("C"))
    assert calls(message) == [("ls", {"path": "/a/very/long/path"})]
    assert reason == "tool_calls"
    [cut] = (await chat.chat.completions.create(**asked("C", max_tokens=2))).choices
    assert (cut.message.tool_calls, cut.finish_reason) == (None, "length")
    assert cut.message.content == "".join(SCRIPTS["C"][:2])


@pytest.mark.parametrize(
    ("choice", "name"),
    [("required", None), ({"type": "function", "function": {"name": "ls"}}, "ls")],
)
async def test_a_required_call_is_made(chat: AsyncOpenAI, choice: Any, name: str | None) -> None:
    """By a model that had something else to say."""
    body = asked("B", tool_choice=choice, parallel_tool_calls=False, max_tokens=400)
    [made] = (await chat.chat.completions.create(**body)).choices
    if made.finish_reason == "tool_calls":
        [(called, _)] = calls(made.message)
        assert called == (name or called)
    else:
        assert made.finish_reason == "length"  # it went on in a string, without an end
        assert "<tool_call>" in (made.message.content or "")


async def test_the_same_in_messages(messages: AsyncAnthropic) -> None:
    """Blocks in order, each of its kind, in a stream and whole."""
    body: dict[str, Any] = {
        "model": "scripted",
        "max_tokens": 200,
        "messages": [{"role": "user", "content": "A"}],
        "tools": MESSAGE_TOOLS,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }
    whole = await messages.messages.create(**body)
    async with messages.messages.stream(**body) as stream:
        streamed = await stream.get_final_message()
    for message in (whole, streamed):
        kinds = [block.type for block in message.content]
        assert kinds == ["thinking", "text", "tool_use", "tool_use"]
        thought, said, write, ls = message.content
        assert (thought.thinking, said.text) == ("I will look.", "Looking now.")  # type: ignore[union-attr]
        assert thought.signature  # type: ignore[union-attr]
        assert (write.input, ls.input) == (WRITE, {})  # type: ignore[union-attr]
        assert message.stop_reason == "tool_use"
    assert whole.usage.output_tokens == streamed.usage.output_tokens


async def test_the_same_in_responses(chat: AsyncOpenAI) -> None:
    """Items in order, in a stream and whole."""
    tools: Any = [
        {"type": "function", "name": name, "parameters": parameters, "strict": False}
        for name, parameters in PARAMETERS.items()
    ]
    body: dict[str, Any] = {"model": "scripted", "input": "A", "tools": tools}
    whole = await chat.responses.create(**body)
    async with chat.responses.stream(**body) as stream:
        streamed = await stream.get_final_response()
    for response in (whole, streamed):
        assert [item.type for item in response.output] == [
            "reasoning",
            "message",
            "function_call",
            "function_call",
        ]
        assert response.output_text == "Looking now."
        made = [item for item in response.output if item.type == "function_call"]
        assert [(call.name, json.loads(call.arguments)) for call in made] == [
            ("write", WRITE),
            ("ls", {}),
        ]


async def test_where_reasoning_goes_is_the_models_setting(
    daemon: Daemon, chat: AsyncOpenAI
) -> None:
    """Saved, and the next request has it; the model stays loaded."""
    plain = daemon.config.read_text()
    for mode, thought, said in (
        ("inline", "", "<think>\nI will look.\n</think>\n\nLooking now."),
        ("omit", "", "Looking now."),
        ("separate", "I will look.", "Looking now."),
    ):
        generation = daemon.status()["observed_generation"]
        daemon.save(f'{plain}\n[models."scripted"]\nreasoning = "{mode}"\n')
        daemon.until_generation(generation + 1)
        message, _ = await both(chat, **asked("A"))
        assert (reasoning(message), message.content) == (thought, said)
    [whole] = (await chat.chat.completions.create(**asked("A"))).choices
    assert whole.finish_reason == "tool_calls"


async def test_a_schema_is_kept(chat: AsyncOpenAI) -> None:
    """By a model that had something else to say; the SDK reads the object."""
    form: Any = {
        "type": "json_schema",
        "json_schema": {
            "name": "answer",
            "strict": True,
            "schema": {
                "type": "object",
                "properties": {"ok": {"type": "boolean"}, "kind": {"enum": ["x", "y"]}},
                "required": ["ok", "kind"],
                "additionalProperties": False,
            },
        },
    }
    body = asked("B", response_format=form, max_tokens=100, temperature=0)
    del body["tools"]
    message, reason = await both(chat, **body)
    value = json.loads(message.content or "")
    assert isinstance(value["ok"], bool)
    assert value["kind"] in ("x", "y")
    assert reason == "stop"


async def test_rows_under_a_grammar_leave_their_neighbours_alone(
    home: Path, tiny_models: Path
) -> None:
    """In one batch, free replies are what they are alone, and those with a form keep to it."""
    free: dict[str, Any] = {
        "model": "tiny-llama",
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 40,
        "temperature": 0,
        "extra_body": {"ignore_eos": True},
    }
    choice: dict[str, Any] = {
        "model": "tiny-llama",
        "messages": [{"role": "user", "content": "which"}],
        "extra_body": {"guided_choice": ["red", "green", "blue"]},
    }
    with Daemon(home, config(tiny_models)) as running:
        url = f"{running.until_listening()}/v1"
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as sdk:
            alone = await sdk.chat.completions.create(**free)
            answers = await asyncio.gather(
                *(sdk.chat.completions.create(**body) for body in (free, choice, free, choice))
            )
    texts = [answer.choices[0].message.content for answer in answers]
    assert texts[0] == texts[2] == alone.choices[0].message.content
    assert {texts[1], texts[3]} <= {"red", "green", "blue"}
