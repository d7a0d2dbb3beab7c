"""What a responses request asks for: kept, refused by name, or let through."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from omlxd.api.ports import ServedModel
from omlxd.api.wire.dialect import Call, Job
from omlxd.api.wire.fold import Fold
from omlxd.api.wire.responses import parse
from omlxd.errors import RequestInvalid
from omlxd.ipc.messages import (
    Constraint,
    Finished,
    GenerateRequest,
    ReasoningDelta,
    Sampling,
    Thinking,
    ToolChoice,
)

CALL = Call(request_id="req_ab", created=1, model=ServedModel(id="org/tiny", kind="llm"))
LS = {"type": "function", "name": "ls", "parameters": {"type": "object"}, "strict": False}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
FORMAT = {"type": "json_schema", "name": "n", "strict": True, "schema": SCHEMA}


def job(**asked: Any) -> Job:
    return parse({"model": "m", "input": "hi", **asked}, CALL)


def read(**asked: Any) -> GenerateRequest:
    (request,) = job(**asked).requests
    return request


def response(**asked: Any) -> dict[str, Any]:
    fold = Fold(1)
    fold.add(ReasoningDelta("req_ab", 0, "hm"))
    fold.add(Finished("req_ab", 0, "stop"))
    return dict(msgspec.json.decode(job(**asked).renderer.result(fold)))


def test_the_least_that_can_be_asked() -> None:
    """Everything else is the model's own default."""
    assert read() == GenerateRequest(
        request_id="req_ab",
        model="org/tiny",
        api="responses",
        messages=[{"role": "user", "content": "hi"}],
    )
    assert not job().stream
    assert job(stream=True).stream


def test_what_is_asked_is_kept() -> None:
    """Each under its neutral name."""
    request = read(
        instructions="Be brief.",
        tools=[LS],
        tool_choice="required",
        parallel_tool_calls=False,
        text={"format": FORMAT, "verbosity": "low"},
        reasoning={"effort": "high", "summary": "auto"},
        max_output_tokens=9,
        temperature=0.5,
        top_p=0.9,
        top_k=-1,
        stop="END",
    )
    assert request.messages is not None
    assert request.messages[0] == {"role": "system", "content": "Be brief."}
    assert [tool["function"]["name"] for tool in request.tools] == ["ls"]
    assert request.tool_choice == ToolChoice(mode="required", parallel=False)
    assert request.constraint == Constraint(
        kind="json_schema", value=SCHEMA, param="text.format.schema"
    )
    assert request.thinking == Thinking(enabled=True, effort="high")
    assert request.max_tokens == 9
    assert request.sampling == Sampling(temperature=0.5, top_p=0.9, top_k=0)
    assert request.stop == ["END"]


def test_null_is_the_same_as_absent() -> None:
    """Also inside of what has parts."""
    nothing = dict.fromkeys(("tools", "tool_choice", "text", "max_output_tokens", "include"))
    assert read(**nothing) == read()
    assert read(text={"format": None}, reasoning={"effort": None, "summary": None}) == read()


def test_the_models_own_last_words_are_gone_on_with() -> None:
    """So a client whose stream broke asks for the rest."""
    hi, said = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hel"}
    assert read(input=[hi, said]).continue_final
    assert not read(input=[said, hi]).continue_final


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("store", True),
        ("store", False),
        ("metadata", {"a": "b"}),
        ("client_metadata", {"a": "b"}),
        ("prompt_cache_key", "k"),
        ("prompt_cache_retention", "24h"),
        ("service_tier", "flex"),
        ("safety_identifier", "x"),
        ("user", "u"),
        ("truncation", "disabled"),
        ("background", False),
        ("include", ["web_search_call.action.sources"]),
        ("stream_options", {"include_obfuscation": False}),
        ("max_tool_calls", 3),
        ("top_logprobs", 0),
        ("text", {"verbosity": "high"}),
        ("tools", [{"type": "web_search"}]),
        ("unknown", 7),
    ],
)
def test_what_changes_nothing_is_let_through(name: str, value: Any) -> None:
    """It asks for nothing that a model of one's own could do differently."""
    assert read(**{name: value}) == read()


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("previous_response_id", "resp_1", "nothing is stored"),
        ("conversation", "conv_1", "nothing is stored"),
        ("conversation", {"id": "conv_1"}, "nothing is stored"),
        ("prompt", {"id": "pmpt_1"}, "nothing is stored"),
        ("background", True, "not in this version"),
        ("truncation", "auto", "nothing is ever cut out"),
        ("n", 2, "not in this version"),
        ("top_logprobs", 3, "not in this version"),
        ("include", ["message.output_text.logprobs"], "not in this version"),
        ("logit_bias", {"a": 1}, "must be"),
        ("instructions", ["a"], "must be a string"),
        ("max_output_tokens", 0, "at least 1"),
        ("temperature", 3, "at most 2"),
        ("parallel_tool_calls", "yes", "true or false"),
        ("include", "reasoning", "a list"),
    ],
)
def test_what_cannot_be_kept_is_refused(name: str, value: Any, word: str) -> None:
    """By name, and with what to do about it."""
    with pytest.raises(RequestInvalid, match=word) as caught:
        read(**{name: value})
    assert caught.value.param == name


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"text": {"format": {"type": "yaml"}}}, "text.format.type"),
        ({"reasoning": {"effort": 7}}, "reasoning.effort"),
        ({"tool_choice": {"type": "function", "name": "dig"}, "tools": [LS]}, "tool_choice"),
        ({"tools": [{"type": "function"}]}, "tools[0]"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
    ],
)
def test_what_stands_deeper_is_refused_with_its_place(asked: dict[str, Any], param: str) -> None:
    """So that a client's user finds it."""
    with pytest.raises(RequestInvalid) as caught:
        read(**asked)
    assert caught.value.param == param


def test_models_that_generate_nothing_are_refused() -> None:
    """As on the other routes."""
    embedder = Call(request_id="r", created=1, model=ServedModel(id="e", kind="embedding"))
    with pytest.raises(RequestInvalid, match="does not generate text"):
        parse({"model": "e", "input": "hi"}, embedder)


def test_pictures_are_counted() -> None:
    """For the request's record."""
    content = [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]
    assert job(input=[{"role": "user", "content": content}]).media_omitted == 1


def test_an_answer_says_what_it_was_asked() -> None:
    """Typed clients read it; and that nothing was stored, whatever was asked."""
    told = response(
        instructions="Be brief.",
        tools=[LS],
        tool_choice="none",
        parallel_tool_calls=False,
        text={"format": FORMAT},
        reasoning={"effort": "low"},
        max_output_tokens=9,
        temperature=0.5,
        metadata={"a": "b"},
        store=True,
    )
    assert told["instructions"] == "Be brief."
    assert told["tools"] == [LS]
    assert told["tool_choice"] == "none"
    assert told["parallel_tool_calls"] is False
    assert told["text"] == {"format": FORMAT}
    assert told["reasoning"] == {"effort": "low", "summary": None}
    assert (told["max_output_tokens"], told["temperature"], told["top_p"]) == (9, 0.5, None)
    assert told["metadata"] == {"a": "b"}
    assert (told["store"], told["truncation"], told["background"]) == (False, "disabled", False)


def test_reasoning_is_sealed_if_asked() -> None:
    """Only then: it is in the summary anyway."""
    (item,) = response(include=["reasoning.encrypted_content"])["output"]
    assert item["encrypted_content"]
    (item,) = response()["output"]
    assert "encrypted_content" not in item
