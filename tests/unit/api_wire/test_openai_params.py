"""Parameters of the OpenAI routes: honoured within limits, or refused with their name."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlxd.api.wire.openai_params import UNSUPPORTED, SharedParams, flatten, read, thinking
from omlxd.errors import RequestInvalid
from omlxd.ipc.messages import Thinking


def params_of(**body: Any) -> SharedParams:
    return read(flatten(body), SharedParams)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("temperature", [0, 0.7, 2], [-0.1, 2.1, float("nan"), float("inf"), "0.7", True]),
        ("top_p", [0, 0.01, 1], [-0.1, 2, "inf", float("nan")]),
        ("top_k", [-1, 0, 40], [-2, 1.5, "40", 1 << 21]),
        ("min_p", [0, 1], [-0.1, 1.1]),
        ("seed", [0, -1, 2**63 - 1], [2**63, 1.5, "1"]),
        ("presence_penalty", [-2, 2], [-10, 2.5]),
        ("frequency_penalty", [-2, 2], [10, float("-inf")]),
        ("repetition_penalty", [0.5, 1.1], [0, -1, 11]),
        ("logit_bias", [{}, {"5": -100, "7": 1.5}], [{"x": 1}, {"5": 101}, {"-1": 1}, [1]]),
        ("max_tokens", [1, 4096], [0, -1, 999_999_999, 1.5, "5", True]),
        ("n", [1, 8], [0, 9, "2"]),
        ("stop", ["a", ["a", "b"], []], ["", ["a", ""], ["x"] * 17, [1], 3, "x" * 1025]),
        ("stream", [True, False], ["true", 1]),
        ("stream_options", [{}, {"include_usage": True, "x": 1}], [{"include_usage": 1}, True]),
        ("ignore_eos", [True, False], ["yes"]),
    ],
)
def test_limits(name: str, good: list[Any], bad: list[Any]) -> None:
    """Values within the limits pass; others are refused with the parameter's name first."""
    for value in good:
        params_of(**{name: value})
    for value in bad:
        with pytest.raises(RequestInvalid) as refusal:
            params_of(**{name: value})
        assert refusal.value.message.startswith(name), value
        assert refusal.value.param is not None
        assert refusal.value.param.startswith(name)


@pytest.mark.parametrize("name", list(SharedParams.__struct_fields__))
def test_null_is_absent(name: str) -> None:
    """Null for any parameter is the same as leaving it out."""
    assert params_of(**{name: None}) == params_of()


@pytest.mark.parametrize("name", list(UNSUPPORTED))
def test_unsupported_is_refused_by_name(name: str) -> None:
    """What would change the result and is not built is refused with its name."""
    with pytest.raises(RequestInvalid, match=name) as refusal:
        params_of(**{name: {"any": "thing"}})
    assert refusal.value.param == name


@pytest.mark.parametrize("name", list(UNSUPPORTED))
def test_unsupported_but_neutral_is_let_through(name: str) -> None:
    """The neutral value of such a parameter, and any empty one, asks for nothing."""
    for value in (UNSUPPORTED[name], None, False, 0, "", []):
        params_of(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("repeat_penalty", 1.3),
        ("typical_p", 0.9),
        ("tfs_z", 0.5),
        ("mirostat", 2),
        ("mirostat_mode", 1),
        ("min_tokens", 5),
        ("length_penalty", 0.5),
        ("use_beam_search", True),
        ("top_a", 0.2),
        ("dry_multiplier", 0.8),
        ("xtc_probability", 0.5),
        ("top_n_sigma", 1),
        ("no_repeat_ngram_size", 3),
        ("stop_token_ids", [7]),
        ("skip_special_tokens", False),
    ],
)
def test_what_other_servers_sample_by_is_refused_by_name(name: str, value: Any) -> None:
    """A result that would differ from the one asked for is not given, however the key is nested."""
    for body in ({name: value}, {"extra_body": {name: value}}):
        with pytest.raises(RequestInvalid) as refusal:
            params_of(**body)
        assert refusal.value.param == name


def test_what_means_nothing_while_its_switch_is_off_is_let_through() -> None:
    """Some clients always send the fine settings of samplers that they left off."""
    off = {"dry_multiplier": 0, "xtc_probability": 0, "mirostat_mode": 0, "typical_p": 1}
    fine = {"dry_base": 1.75, "dry_allowed_length": 2, "xtc_threshold": 0.1, "mirostat_tau": 5}
    assert params_of(**off, **fine, skip_special_tokens=True, top_n_sigma=-1) == params_of()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"n": 0}, "n: must be a whole number of at least 1, not 0."),
        ({"n": 9}, "n: must be a whole number of at most 8, not 9."),
        ({"n": 1.5}, "n: must be a whole number, not 1.5."),
        ({"max_tokens": "5"}, 'max_tokens: must be a whole number, not "5".'),
        ({"temperature": 2.5}, "temperature: must be a number of at most 2, not 2.5."),
        ({"temperature": "hot"}, 'temperature: must be a number, not "hot".'),
        ({"repetition_penalty": 0}, "repetition_penalty: must be a number above 0, not 0."),
        ({"stop": ["a", ""]}, 'stop[1]: must be a string of at least 1 character, not "".'),
        ({"stop": ["x"] * 17}, "stop: must be a list of at most 16 entries, not 17."),
        ({"stop": 3}, "stop: must be a string or a list, not 3."),
        ({"stream": "true"}, 'stream: must be true or false, not "true".'),
        ({"stream_options": True}, "stream_options: must be an object, not true."),
        ({"logit_bias": {"5": 101}}, "logit_bias: every value must be a number of at most 100."),
        ({"logit_bias": {"x": 1}}, "logit_bias: every key must be a whole number."),
        ({"seed": 2**63}, "seed: must be a whole number of at most 9223372036854775807, not 9223"),
    ],
)
def test_a_refusal_says_what_would_do_and_what_came(body: dict[str, Any], message: str) -> None:
    """Whoever reads it needs no source: kind, bound and the value that was sent."""
    with pytest.raises(RequestInvalid) as refusal:
        params_of(**body)
    assert refusal.value.message.startswith(message)


def test_unknown_keys_are_let_through() -> None:
    """Keys that nobody knows do no harm."""
    assert params_of(store=True, user="u", metadata={}, service_tier="x", zzz=1) == params_of()


def test_sampling_carries_every_value() -> None:
    """Each sampling parameter reaches the neutral request under its own name."""
    sampling = params_of(
        temperature=0.5,
        top_p=0.9,
        top_k=-1,
        min_p=0.1,
        seed=-1,
        presence_penalty=1,
        frequency_penalty=-1,
        repetition_penalty=1.2,
        logit_bias={"12": 3},
    ).sampling()
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.9, 0)
    assert (sampling.min_p, sampling.seed) == (0.1, 2**63 - 1)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (1, -1)
    assert (sampling.repetition_penalty, sampling.logit_bias) == (1.2, {12: 3})


def test_extra_body_is_unpacked_below_the_top_level() -> None:
    """`extra_body` nested by mistake counts, and the top level wins over it."""
    asked = params_of(extra_body={"top_k": 5, "seed": 1}, seed=2)
    assert (asked.top_k, asked.seed) == (5, 2)
    with pytest.raises(RequestInvalid, match="extra_body"):
        flatten({"extra_body": [1]})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(SharedParams.__struct_fields__), json_values))
def test_any_value_is_taken_or_refused(body: dict[str, Any]) -> None:
    """Whatever a known key holds, the only failure is RequestInvalid."""
    with contextlib.suppress(RequestInvalid):
        read(flatten(body), SharedParams).sampling()


def test_effort_turns_reasoning_on_or_off() -> None:
    """Where nothing is asked, the model's settings and its template decide."""
    assert thinking(None) == Thinking()
    assert thinking("none") == Thinking(enabled=False)
    assert thinking("high") == Thinking(enabled=True, effort="high")
