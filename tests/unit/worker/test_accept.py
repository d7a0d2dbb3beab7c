"""One request: refused with a reason, or made into rows for the engine."""

from __future__ import annotations

from typing import Any

import pytest

from omlxd.errors import ContextOverflow, RequestInvalid
from omlxd.ipc.messages import GenerateRequest, LiveSettings, Sampling
from omlxd.worker.accept import AcceptedRequest, accept, served_window
from omlxd.worker.ports import ResolvedSampling
from omlxd.worker.prompt_size import CHUNK_CHARACTERS
from tests.support.models import EOS_TOKENS
from tests.support.tokenizers import text_model

MODEL = text_model()
LIVE = LiveSettings()


def request(**fields: Any) -> GenerateRequest:
    if "messages" not in fields:
        fields = {"prompt": "hello"} | fields
    return GenerateRequest(request_id="r", model="tiny", **fields)


def accepted(live: LiveSettings = LIVE, **fields: Any) -> AcceptedRequest:
    return accept(request(**fields), model=MODEL, live=live)


def refused(**fields: Any) -> RequestInvalid:
    with pytest.raises(RequestInvalid) as error:
        accepted(**fields)
    return error.value


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 0}, "n"),
        ({"n": 1000}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -5}, "max_tokens"),
        ({"stop": [""]}, "stop"),
        ({"stop": ["x" * 2000]}, "stop"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"top_logprobs": -1}, "top_logprobs"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"prompt": [5, 1024]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": None}, "messages"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"messages": [{"role": "user", "content": "x"}], "prompt": "x"}, "messages"),
        ({"messages": [{"role": "user", "content": "x"}], "echo": True}, "echo"),
        ({"echo": True, "top_logprobs": 0}, "echo"),
        ({"sampling": Sampling(temperature=5)}, "temperature"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    """No parameter is dropped in silence."""
    assert refused(**fields).param == param


def test_text_and_token_ids_are_the_same_prompt() -> None:
    """A prompt of ids is taken as it is."""
    ids = MODEL.tokenizer.encode("hello")
    assert accepted().rows[0].prompt == accepted(prompt=ids).rows[0].prompt == ids


def test_an_empty_prompt_begins_with_the_models_own_token() -> None:
    """A model with a begin-of-text token can write from nothing."""
    tokenizer = MODEL.tokenizer
    tokenizer.bos_token = "<|endoftext|>"
    try:
        assert accepted(prompt="").rows[0].prompt == [0]
    finally:
        tokenizer.bos_token = None


def test_a_prompt_that_fills_the_window_overflows_with_both_numbers() -> None:
    """One token must be left for the reply: 63 fit into 64, 64 do not."""
    assert accepted(prompt=[5] * 63).rows[0].max_tokens == 1
    error = refused(prompt=[5] * 64)
    assert isinstance(error, ContextOverflow)
    assert (error.prompt_tokens, error.max_context) == (64, 64)
    assert "64 tokens" in error.message
    assert error.param == "prompt"


def test_a_prompt_can_be_counted_only() -> None:
    """Also one that does not fit; what is far too long is refused before it costs anything."""
    for size in (63, 64, 100):
        counted = accepted(prompt=[5] * size, count_only=True)
        assert (counted.rows, counted.prompt_tokens) == ([], size)
    hello = [{"role": "user", "content": "hello"}]
    generated = accepted(messages=hello)
    assert accepted(messages=hello, count_only=True).prompt_tokens == generated.prompt_tokens
    assert len(generated.rows[0].prompt) == generated.prompt_tokens
    assert isinstance(refused(prompt="hello " * 2_000_000, count_only=True), ContextOverflow)


def test_messages_that_overflow_are_named_as_messages() -> None:
    """The client is told the field that it sent."""
    assert refused(messages=[{"role": "user", "content": "hello " * 64}]).param == "messages"


@pytest.mark.parametrize("text", ["hello " * 2_000_000, "<|im_end|>" * 500_000])
@pytest.mark.parametrize("field", ["prompt", "messages"])
def test_what_is_far_too_long_is_refused_before_it_is_tokenised(
    field: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a first part is, so a huge prompt holds nobody up and takes no memory."""
    seen: list[int] = []
    backend = type(MODEL.tokenizer)._encode_plus

    def encode(self: Any, text: str, *args: Any, **kwargs: Any) -> Any:
        seen.append(len(text))
        return backend(self, text, *args, **kwargs)

    monkeypatch.setattr(type(MODEL.tokenizer), "_encode_plus", encode)
    error = refused(**{field: text if field == "prompt" else [{"role": "user", "content": text}]})
    assert isinstance(error, ContextOverflow)
    assert sum(seen) <= CHUNK_CHARACTERS
    assert error.at_least
    assert (error.param, error.max_context) == (field, 64)
    assert f"at least {error.prompt_tokens} tokens" in error.message
    assert error.prompt_tokens > 64


def test_too_many_messages_are_refused_before_they_are_rendered() -> None:
    """Each is a token or more."""
    error = refused(messages=[{"role": "user", "content": ""}] * 65)
    assert isinstance(error, ContextOverflow)
    assert (error.prompt_tokens, error.at_least) == (65, True)


@pytest.mark.parametrize(
    ("asked", "live", "expected"),
    [
        (None, LiveSettings(), 54),
        (None, LiveSettings(max_output_tokens=20), 20),
        (None, LiveSettings(max_context=30), 20),
        (5, LiveSettings(max_output_tokens=20), 5),
        (30, LiveSettings(max_output_tokens=20), 20),
        (999_999, LiveSettings(), 54),
    ],
)
def test_the_reply_gets_what_is_asked_for_and_left(
    asked: int | None, live: LiveSettings, expected: int
) -> None:
    """The smallest of the wish, the rest of the window, and the model's limit."""
    job = accepted(live, prompt=[5] * 10, max_tokens=asked).rows[0]
    assert job.max_tokens == expected


def test_the_served_window_is_never_wider_than_the_models() -> None:
    """A smaller window can be asked for in the spec, a larger one does not exist."""
    assert served_window(MODEL, LiveSettings(max_context=1000)) == 64
    assert served_window(MODEL, LiveSettings(max_context=16)) == 16


def test_choices_are_rows_with_seeds_of_their_own() -> None:
    """n rows of one prompt; only the seed differs."""
    rows = accepted(n=3, sampling=Sampling(seed=4, temperature=0.5)).rows
    assert [(row.index, row.sampling.seed) for row in rows] == [(0, 4), (1, 5), (2, 6)]
    assert {row.sampling.temperature for row in rows} == {0.5}


def test_ends_of_turn_can_be_ignored() -> None:
    """ignore_eos leaves no token that stops the row."""
    assert accepted().rows[0].stop_tokens == frozenset(EOS_TOKENS)
    assert accepted(ignore_eos=True).rows[0].stop_tokens == frozenset()


def test_template_variables_of_the_request_go_before_the_specs() -> None:
    """The spec sets a default, the request may turn it round."""
    live = LiveSettings(chat_template_kwargs={"enable_thinking": False})
    messages = [{"role": "user", "content": "hi"}]
    closed = accepted(live, messages=messages).prompt_tokens
    kwargs = {"enable_thinking": True}
    assert accepted(live, messages=messages, template_kwargs=kwargs).prompt_tokens < closed


def test_sampling_of_the_spec_reaches_the_row() -> None:
    """What the request leaves open, the spec decides."""
    live = LiveSettings(sampling=Sampling(temperature=0.25))
    assert accepted(live).rows[0].sampling == ResolvedSampling(temperature=0.25)


@pytest.mark.parametrize("as_ids", [False, True])
def test_the_echo_is_the_prompts_text(as_ids: bool) -> None:
    """For ids it is what they decode to."""
    prompt = MODEL.tokenizer.encode("hello") if as_ids else "hello"
    assert accepted(prompt=prompt, echo=True).plan.echo == "hello"
    assert accepted(prompt=prompt).plan.echo == ""
