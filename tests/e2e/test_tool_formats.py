"""Every family's way to call tools, through the whole stack and in all three dialects."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from tests.support.daemon import Daemon, config
from tests.support.scripted import CALL_TEMPLATES, family_scripts, make_family, written

pytestmark = pytest.mark.e2e

FORMS = sorted(CALL_TEMPLATES)
# A string that holds what would end a call in some format, or has to be escaped in another.
TEXT = 'say "hi" </tool_call> </parameter>\n\tč 😀 }) end'
WRITE = {"path": "02134", "text": TEXT, "lines": 3}
CALLS: list[tuple[str, dict[str, Any]]] = [("write", WRITE), ("ls", {})]
PARAMETERS: dict[str, dict[str, Any]] = {
    "write": {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "text": {"type": "string"},
            "lines": {"type": "integer"},
        },
    },
    "ls": {"type": "object", "properties": {}},
}
CHAT_TOOLS: Any = [
    {"type": "function", "function": {"name": name, "parameters": parameters}}
    for name, parameters in PARAMETERS.items()
]
MESSAGE_TOOLS: Any = [
    {"name": name, "input_schema": parameters} for name, parameters in PARAMETERS.items()
]
RESPONSE_TOOLS: Any = [
    {"type": "function", "name": name, "parameters": parameters, "strict": False}
    for name, parameters in PARAMETERS.items()
]


def thought(form: str) -> str:
    if form == "harmony":
        return "<|channel|>analysis<|message|>I will look.<|end|><|start|>assistant"
    return "<think>\nI will look.\n</think>\n\n"


def said(form: str) -> str:
    return "" if form == "harmony" else "Looking now."


def called(form: str) -> str:
    """Thought, text and two calls, as the model writes them."""
    return thought(form) + said(form) + written(form, CALLS)


def broken(form: str) -> str:
    """What begins like a call of the format, and is none."""
    whole = written(form, [("write", {"path": "x"})])
    return "see " + whole[: whole.index("write")] + "? not a call at all"


def texts(form: str) -> dict[str, str]:
    return {"A": called(form), "B": broken(form)}


def cut(form: str) -> tuple[int, str]:
    """How many tokens end amid the first call's long string; what was said behind the thought."""
    text = ""
    for number, piece in enumerate(family_scripts(form, texts(form))["A"], start=1):
        text += piece
        if "say " in text:
            return number, text.removeprefix(thought(form))
    raise AssertionError("the string is never said")


@pytest.fixture(scope="module")
def url(shared_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A daemon that serves one scripted model of each family; every one says the same."""
    folder = tmp_path_factory.mktemp("families")
    for form in FORMS:
        make_family(folder, form, texts(form))
    with Daemon(shared_home, config(folder, body='[defaults]\nttl = "never"\n')) as running:
        running.until(lambda s: len(s["models"]) == len(FORMS), "all models discovered")
        yield running.until_listening()


@pytest.fixture
async def openai(url: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as sdk:
        yield sdk


@pytest.fixture
async def anthropic(url: str) -> AsyncIterator[AsyncAnthropic]:
    async with AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as sdk:
        yield sdk


def chat(form: str, key: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": key}]
    return {"model": form, "messages": messages, "tools": CHAT_TOOLS, **more}


def message(form: str, key: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": key}]
    body = {"model": form, "messages": messages, "tools": MESSAGE_TOOLS, "max_tokens": 400}
    return {**body, **more}


def response(form: str, key: str, **more: Any) -> dict[str, Any]:
    return {"model": form, "input": key, "tools": RESPONSE_TOOLS, **more}


async def both_chats(sdk: AsyncOpenAI, body: dict[str, Any]) -> list[Any]:
    """The reply whole, and as the SDK folds a stream of it."""
    whole = await sdk.chat.completions.create(**body)
    options = {"stream_options": {"include_usage": True}}
    async with sdk.chat.completions.stream(**body, **options) as stream:
        return [whole, await stream.get_final_completion()]


async def raw_chat(sdk: AsyncOpenAI, body: dict[str, Any]) -> tuple[list[str], str]:
    """Reasons to finish, and all arguments, as chunks bring them: the SDK folds no reply cut so."""
    reasons, arguments = [], ""
    async for chunk in await sdk.chat.completions.create(**body, stream=True):
        for choice in chunk.choices:
            reasons += [choice.finish_reason] if choice.finish_reason else []
            for call in choice.delta.tool_calls or []:
                arguments += call.function.arguments or ""
    return reasons, arguments


async def both_messages(sdk: AsyncAnthropic, body: dict[str, Any]) -> list[Any]:
    whole = await sdk.messages.create(**body)
    async with sdk.messages.stream(**body) as stream:
        return [whole, await stream.get_final_message()]


async def both_responses(sdk: AsyncOpenAI, body: dict[str, Any]) -> list[Any]:
    whole = await sdk.responses.create(**body)
    async with sdk.responses.stream(**body) as stream:
        return [whole, await stream.get_final_response()]


def calls_of(made: Any) -> list[tuple[str, Any]]:
    """Of a chat message; every call has an id of its own."""
    calls = made.tool_calls or []
    assert len({call.id for call in calls}) == len(calls)
    return [(call.function.name, json.loads(call.function.arguments)) for call in calls]


def items_of(made: Any) -> list[tuple[str, Any]]:
    calls = [item for item in made.output if item.type == "function_call"]
    return [(call.name, json.loads(call.arguments)) for call in calls]


# ---------------------------------------------------------------------------- whole replies


@pytest.mark.parametrize("form", FORMS)
async def test_calls_in_chat(openai: AsyncOpenAI, form: str) -> None:
    """Reasoning, text and both calls apart, typed by the schema and exact to the byte."""
    for completion in await both_chats(openai, chat(form, "A")):
        [choice] = completion.choices
        assert calls_of(choice.message) == CALLS
        assert (choice.message.content or "") == said(form)
        assert choice.message.reasoning_content == "I will look."
        assert choice.finish_reason == "tool_calls"


@pytest.mark.parametrize("form", FORMS)
async def test_calls_in_messages(anthropic: AsyncAnthropic, form: str) -> None:
    """Blocks in the order in which they were written."""
    thinking = {"type": "enabled", "budget_tokens": 1024}
    for reply in await both_messages(anthropic, message(form, "A", thinking=thinking)):
        used = [block for block in reply.content if block.type == "tool_use"]
        assert [(block.name, block.input) for block in used] == CALLS
        texts = [block.text for block in reply.content if block.type == "text"]
        assert "".join(texts) == said(form)
        assert reply.content[0].thinking == "I will look."
        assert reply.stop_reason == "tool_use"


@pytest.mark.parametrize("form", FORMS)
async def test_calls_in_responses(openai: AsyncOpenAI, form: str) -> None:
    """Items in the order in which they were written, each with an id of its own."""
    for reply in await both_responses(openai, response(form, "A")):
        assert items_of(reply) == CALLS
        assert reply.output_text == said(form)
        assert reply.output[0].type == "reasoning"
        assert reply.status == "completed"
        assert len({item.id for item in reply.output}) == len(reply.output)


@pytest.mark.parametrize("form", FORMS)
async def test_markup_that_is_no_call_is_text(openai: AsyncOpenAI, form: str) -> None:
    """Nothing of it is lost, and nothing is called."""
    for completion in await both_chats(openai, chat(form, "B")):
        [choice] = completion.choices
        assert choice.message.content == broken(form)
        assert (calls_of(choice.message), choice.finish_reason) == ([], "stop")


@pytest.mark.parametrize("form", FORMS)
async def test_the_turn_after_a_call(openai: AsyncOpenAI, form: str) -> None:
    """Each template is told of the calls in the form it wants, and the reply is the same again."""
    first = await openai.chat.completions.create(**chat(form, "A"))
    made = first.choices[0].message
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": "done"}
        for call in made.tool_calls or []
    ]
    asked = chat(form, "A")
    asked["messages"] += [made.to_dict(), *results, {"role": "user", "content": "A"}]
    for completion in await both_chats(openai, asked):
        assert calls_of(completion.choices[0].message) == CALLS


# ---------------------------------------------------------------------------- ends


@pytest.mark.parametrize("form", FORMS)
async def test_a_call_that_is_cut_is_text(openai: AsyncOpenAI, form: str) -> None:
    """By the limit of tokens: no half call, and all that was written is there."""
    tokens, written_so_far = cut(form)
    body = chat(form, "A", max_tokens=tokens)
    whole = await openai.chat.completions.create(**body)
    [choice] = whole.choices
    assert (choice.message.tool_calls, choice.finish_reason) == (None, "length")
    assert choice.message.content == written_so_far
    assert whole.usage.completion_tokens == tokens
    reasons, arguments = await raw_chat(openai, body)
    assert reasons == ["length"]
    with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
        json.loads(arguments)  # what a client holds cannot be run


async def test_a_cut_call_in_the_other_dialects(
    openai: AsyncOpenAI, anthropic: AsyncAnthropic
) -> None:
    """Each has a word of its own for a limit, and never the one for a call."""
    tokens, written_so_far = cut("qwen3_coder")
    whole, streamed = await both_messages(anthropic, message("qwen3_coder", "A", max_tokens=tokens))
    assert (whole.stop_reason, streamed.stop_reason) == ("max_tokens", "max_tokens")
    assert "".join(b.text for b in whole.content if b.type == "text") == written_so_far
    body = response("qwen3_coder", "A", max_output_tokens=tokens)
    made = await openai.responses.create(**body)
    events = [event async for event in await openai.responses.create(**body, stream=True)]
    assert events[-1].type == "response.incomplete"
    for reply in (made, events[-1].response):
        assert reply.status == "incomplete"
        assert reply.incomplete_details.reason == "max_output_tokens"
    assert made.output_text == written_so_far
    assert all(i.status == "incomplete" for i in events[-1].response.output[-1:])


@pytest.mark.parametrize("form", ["harmony", "json_tools", "qwen3_coder"])
async def test_a_stop_string_inside_a_call(openai: AsyncOpenAI, form: str) -> None:
    """Ends the reply before it, as anywhere; the call was never made."""
    whole, streamed = await both_chats(openai, chat(form, "A", stop=["say "]))
    [choice] = whole.choices
    assert (choice.message.tool_calls, choice.finish_reason) == (None, "stop")
    written_so_far = called(form).removeprefix(thought(form)).partition("say ")[0]
    assert choice.message.content == written_so_far
    assert streamed.choices[0].finish_reason == "stop"


async def test_a_stop_string_behind_a_call(openai: AsyncOpenAI) -> None:
    """A call that is complete by then counts."""
    stop = '{"name": "ls"'
    for completion in await both_chats(openai, chat("json_tools", "A", stop=[stop])):
        [choice] = completion.choices
        assert calls_of(choice.message) == CALLS[:1]
        assert choice.finish_reason == "tool_calls"


async def test_one_call_at_most(openai: AsyncOpenAI, anthropic: AsyncAnthropic) -> None:
    """Whatever the dialect calls it, the turn ends with the first call."""
    one = chat("mistral", "A", parallel_tool_calls=False)
    for completion in await both_chats(openai, one):
        assert calls_of(completion.choices[0].message) == CALLS[:1]
        assert completion.choices[0].finish_reason == "tool_calls"
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    for reply in await both_messages(anthropic, message("mistral", "A", tool_choice=choice)):
        assert [b.name for b in reply.content if b.type == "tool_use"] == ["write"]
        assert reply.stop_reason == "tool_use"
    for made in await both_responses(openai, response("mistral", "A", parallel_tool_calls=False)):
        assert items_of(made) == CALLS[:1]


async def test_no_call_where_none_may_be(openai: AsyncOpenAI, anthropic: AsyncAnthropic) -> None:
    """The markup is the text of the answer then."""
    text = called("glm47").removeprefix(thought("glm47"))
    for completion in await both_chats(openai, chat("glm47", "A", tool_choice="none")):
        [choice] = completion.choices
        assert (choice.message.content, choice.finish_reason) == (text, "stop")
    asked = message("glm47", "A", tool_choice={"type": "none"})
    for reply in await both_messages(anthropic, asked):
        assert "".join(b.text for b in reply.content if b.type == "text") == text
        assert reply.stop_reason == "end_turn"
    for made in await both_responses(openai, response("glm47", "A", tool_choice="none")):
        assert (made.output_text, items_of(made)) == (text, [])


@pytest.mark.parametrize("form", ["harmony", "qwen3_coder"])
async def test_tokens_of_reasoning_are_told(openai: AsyncOpenAI, form: str) -> None:
    """From the mark that opens it to the one that closes it, in both of OpenAI's dialects."""
    pieces = family_scripts(form, texts(form))["A"]
    opening, closing = ("<think>", "</think>")
    if form == "harmony":
        opening, closing = ("<|channel|>analysis<|message|>", "<|end|>")
    said_by = ["".join(pieces[: n + 1]) for n in range(len(pieces))]
    tokens = sum(opening in text for text in said_by) - sum(closing in text for text in said_by) + 1
    for completion in await both_chats(openai, chat(form, "A")):
        assert completion.usage.completion_tokens == len(pieces) + 1  # and the end of the turn
        assert completion.usage.completion_tokens_details.reasoning_tokens == tokens
    for made in await both_responses(openai, response(form, "A")):
        assert made.usage.output_tokens == len(pieces) + 1
        assert made.usage.output_tokens_details.reasoning_tokens == tokens
