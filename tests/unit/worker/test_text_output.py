"""One choice: tokens in, deltas out, and its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers.convert_slow_tokenizer import bytes_to_unicode

from omlxd.ipc.messages import (
    ChoiceEvent,
    Delta,
    Finished,
    ReasoningDelta,
    ReasoningMode,
    TokenLogprob,
    ToolCallArguments,
    ToolCallBegin,
    ToolCallEnd,
)
from omlxd.worker.detokenize import Decoding
from omlxd.worker.output_format import OutputFormat
from omlxd.worker.ports import TokenOut
from omlxd.worker.text_output import ChoiceOutput, OutputPlan
from tests.support.tokenizers import chat_tokenizer, sentencepiece_tokenizer

TOKENIZER = chat_tokenizer()
DECODING = Decoding(TOKENIZER)
END = TOKENIZER.eos_token_id


def outs(tokens: Sequence[int], *, length: bool = False) -> list[TokenOut]:
    """The tokens of a row that ends its turn, or is cut by its length."""
    if length:
        *rest, last = tokens
        return [*(TokenOut("r", 0, token) for token in rest), TokenOut("r", 0, last, "length")]
    return [*(TokenOut("r", 0, token) for token in tokens), TokenOut("r", 0, END, "stop")]


def run(tokens: Sequence[TokenOut], **settings: Any) -> list[ChoiceEvent]:
    decoding = settings.pop("decoding", DECODING)
    choice = ChoiceOutput("r", 0, decoding=decoding, plan=OutputPlan(**settings))
    events: list[ChoiceEvent] = []
    for token in tokens:
        events += choice.feed(token)
        if choice.is_ended:
            break
    return events


def text(events: Sequence[ChoiceEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Delta))


def logprobs(events: Sequence[ChoiceEvent]) -> list[TokenLogprob]:
    return [entry for event in events if isinstance(event, Delta) for entry in event.logprobs or []]


def encode(words: str) -> list[int]:
    return list(TOKENIZER.encode(words, add_special_tokens=False))


def earliest(whole: str, stops: list[str]) -> tuple[str, str | None]:
    found = [(whole.find(stop), -len(stop), stop) for stop in stops if stop in whole]
    return (whole[: min(found)[0]], min(found)[2]) if found else (whole, None)


@given(
    tokens=st.lists(st.integers(0, len(TOKENIZER) - 1), min_size=1, max_size=24),
    stops=st.lists(st.sampled_from([" ", "a", "the", "\ufffd", "e ", "<think>", "on"]), max_size=3),
    length=st.booleans(),
)
def test_the_text_is_the_decoded_text_cut_at_the_first_stop(
    tokens: list[int], stops: list[str], length: bool
) -> None:
    """Whatever the tokens: text, reason and stop string are those of the whole text."""
    tokens = [token for token in tokens if token != END] or [5]
    whole = str(TOKENIZER.decode(tokens, skip_special_tokens=True))
    events = run(outs(tokens, length=length), stops=stops)
    shown, stop = earliest(whole, stops)
    assert text(events) == shown
    reason = "length" if length and stop is None else "stop"
    assert events[-1] == Finished("r", 0, reason, stop)
    assert not any(isinstance(event, Finished) for event in events[:-1])


@given(
    tokens=st.lists(st.integers(0, len(TOKENIZER) - 1), min_size=1, max_size=24),
    stops=st.lists(st.sampled_from([" ", "the", "e ", "on"]), max_size=2),
)
def test_log_probabilities_are_those_of_the_shown_tokens(
    tokens: list[int], stops: list[str]
) -> None:
    """Put together, the tokens' bytes are the text; those a stop cut into are left out."""
    tokens = [token for token in tokens if token != END] or [5]
    events = run(outs(tokens), stops=stops, has_logprobs=True)
    entries = logprobs(events)
    joined = b"".join(entry.bytes_ for entry in entries)
    finished = events[-1]
    assert isinstance(finished, Finished)
    if finished.stop_sequence is None:
        assert len(entries) == len(tokens)
        assert joined.decode("utf-8", "replace") == text(events)
    else:
        assert text(events).startswith(joined.decode("utf-8", "replace"))


def test_log_probabilities_wait_with_their_text() -> None:
    """A delta's entries make up that delta's text, while half a stop string is held back."""
    events = run(outs(encode("one two three")), stops=[" three four"], has_logprobs=True)
    for event in events[:-1]:
        assert isinstance(event, Delta)
        assert "".join(entry.token for entry in event.logprobs or []) == event.text


def test_the_parts_of_a_character_are_reported_together() -> None:
    """Tokens that are bytes of one character wait for the delta that shows it."""
    tokens = encode("\U0001f600")
    assert len(tokens) == 4
    [delta, finished] = run(outs(tokens), has_logprobs=True)
    assert isinstance(delta, Delta)
    assert [entry.bytes_ for entry in delta.logprobs or []] == [b"\xf0", b"\x9f", b"\x98", b"\x80"]
    assert isinstance(finished, Finished)


def test_a_token_tells_its_alternatives() -> None:
    """Alternatives are named by their own text, also the special ones."""
    [token] = encode("a")
    drawn = TokenOut("r", 0, token, "length", -0.5, ((token, -0.5), (END, -1.5)))
    [entry] = logprobs(run([drawn], has_logprobs=True))
    assert entry == TokenLogprob(
        "a", -0.5, b"a", [("a", -0.5, b"a"), ("<|im_end|>", -1.5, b"<|im_end|>")]
    )


def test_the_first_piece_of_a_reply_is_reported_without_its_space() -> None:
    """Entries follow the leading-space rule of the text they stand for."""
    tokenizer = sentencepiece_tokenizer()
    tokens = tokenizer.encode("hello world", add_special_tokens=False)
    events = run(outs(tokens, length=True), decoding=Decoding(tokenizer), has_logprobs=True)
    assert "".join(entry.token for entry in logprobs(events)) == text(events) == "hello world"


def test_deltas_count_the_tokens_held_back_before_them() -> None:
    """Every token but the one that ended the turn belongs to the delta that shows it."""
    tokens = encode("a 😀 b")
    events = run(outs(tokens))
    assert sum(event.tokens for event in events if isinstance(event, Delta)) == len(tokens)
    assert len(events) - 1 < len(tokens)


def test_an_echoed_prompt_is_the_first_delta() -> None:
    """It counts no output tokens, and stop strings are not looked for in it."""
    events = run(outs(encode("xy")), echo="stop here: ", stops=["stop"])
    assert events[0] == Delta("r", 0, "stop here: ", tokens=0)
    assert text(events) == "stop here: xy"


def test_an_empty_reply_has_no_delta() -> None:
    """A turn that ends at once only finishes."""
    assert run(outs([])) == [Finished("r", 0, "stop")]


THINK = OutputFormat(think_start="<think>", think_end="</think>")
THINKING = "<think>\nhm\nm\n</think>\n\nyes"


def reasoning(events: Sequence[ChoiceEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, ReasoningDelta))


@pytest.mark.parametrize(
    ("mode", "thought", "said"),
    [
        ("separate", "hm\nm", "yes"),
        ("inline", "", "<think>\nhm\nm\n</think>\n\nyes"),
        ("omit", "", "yes"),
    ],
)
@pytest.mark.parametrize("opened", [False, True])
def test_reasoning_goes_where_the_model_is_set_to(
    mode: ReasoningMode, thought: str, said: str, opened: bool
) -> None:
    """Whether the prompt or the reply opens it, the client sees the same."""
    written = THINKING.removeprefix("<think>\n") if opened else THINKING
    events = run(outs(encode(written)), form=THINK, in_reasoning=opened, reasoning=mode)
    assert (reasoning(events), text(events)) == (thought, said)


def test_tokens_of_reasoning_are_counted_apart() -> None:
    """Its marks count as reasoning, also where none of it is delivered."""
    choice = ChoiceOutput("r", 0, decoding=DECODING, plan=OutputPlan(form=THINK, reasoning="omit"))
    for token in outs(encode("<think>hm</think>") + encode("yes")):
        choice.feed(token)
    assert choice.num_reasoning_tokens == len(encode("<think>hm</think>"))
    assert choice.num_tokens == choice.num_reasoning_tokens + len(encode("yes")) + 1


def test_a_turn_cut_in_its_reasoning_says_nothing() -> None:
    """By length and by a stop string alike: what was thought stays reasoning."""
    for settings in ({}, {"stops": [" b"]}):
        events = run(outs(encode("<think>a b"), length=True), form=THINK, **settings)
        assert text(events) == ""
        assert reasoning(events) == ("a" if settings else "a b")


def test_log_probabilities_are_of_what_is_said() -> None:
    """Reasoning has none."""
    events = run(outs(encode("<think>hm</think>") + encode("yes")), form=THINK, has_logprobs=True)
    assert "".join(entry.token for entry in logprobs(events)) == "yes"


@given(st.lists(st.sampled_from(["<think>", "</think>", "a", " b", "\n", "😀"]), max_size=8))
def test_a_reply_does_not_depend_on_where_its_tokens_part(pieces: list[str]) -> None:
    """Token by token as the vocabulary has them, and byte by byte."""
    whole = "".join(pieces)
    names = bytes_to_unicode()
    by_byte = [int(TOKENIZER.convert_tokens_to_ids(names[byte])) for byte in whole.encode()]
    first = run(outs(encode(whole)), form=THINK)
    second = run(outs(by_byte), form=THINK)
    assert (reasoning(first), text(first)) == (reasoning(second), text(second))


CALLS = OutputFormat(think_start="<think>", think_end="</think>")
TOOLS = [{"type": "function", "function": {"name": "ls", "description": "", "parameters": {}}}]
LS = '<tool_call>\n{"name": "ls", "arguments": {"a": "b"}}\n</tool_call>'


def calls(events: Sequence[ChoiceEvent]) -> list[tuple[str, str, str]]:
    """Name, arguments, and what is told of a cut, by number."""
    found: dict[int, list[str]] = {}
    for event in events:
        match event:
            case ToolCallBegin():
                found[event.call] = [event.name, "", ""]
            case ToolCallArguments():
                found[event.call][1] += event.text
            case ToolCallEnd():
                found[event.call][2] = event.cut
    return [(name, arguments, cut) for name, arguments, cut in found.values()]


def test_calls_are_told_apart_and_finish_the_turn() -> None:
    """Reasoning, then text, then calls with numbers of their own."""
    events = run(outs(encode(f"<think>hm</think>\n\nok\n{LS}\n{LS}")), form=CALLS, tools=TOOLS)
    assert (reasoning(events), text(events)) == ("hm", "ok")
    assert calls(events) == [("ls", '{"a": "b"}', "")] * 2
    assert events[-1] == Finished("r", 0, "tool_calls")
    assert sum(getattr(event, "tokens", 0) for event in events) <= len(outs(encode(LS))) * 3


def test_one_call_only_ends_the_turn() -> None:
    """The row is cut where the call ends, whatever would follow."""
    sent = outs(encode(f"{LS}\n{LS}"))
    choice = ChoiceOutput(
        "r", 0, decoding=DECODING, plan=OutputPlan(form=CALLS, tools=TOOLS, parallel=False)
    )
    events: list[ChoiceEvent] = []
    fed = 0
    while not choice.is_ended:
        events += choice.feed(sent[fed])
        fed += 1
    assert fed < len(sent) // 2 + 2
    assert calls(events) == [("ls", '{"a": "b"}', "")]
    assert events[-1] == Finished("r", 0, "tool_calls")


@pytest.mark.parametrize(("length", "reason"), [(True, "length"), (False, "stop")])
def test_a_call_that_is_cut_is_no_call(length: bool, reason: str) -> None:
    """It ends with its text, and the turn is not one that calls."""
    half = LS[:48]
    events = run(outs(encode(half), length=length), form=CALLS, tools=TOOLS)
    [(name, _, cut)] = calls(events)
    assert (name, cut) == ("ls", half)
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.reason == reason


def test_calls_of_a_turn_that_ends_in_its_reasoning_are_delivered() -> None:
    """The model took them for its answer; a cut turn is another matter."""
    thought = encode(f"<think>hm {LS}")
    assert len(calls(run(outs(thought), form=CALLS, tools=TOOLS))) == 1
    assert calls(run(outs(thought, length=True), form=CALLS, tools=TOOLS)) == []
    two = encode(f"<think>hm {LS}{LS}")
    assert len(calls(run(outs(two), form=CALLS, tools=TOOLS))) == 2
    assert len(calls(run(outs(two), form=CALLS, tools=TOOLS, parallel=False))) == 1


def test_markup_is_text_where_no_tools_were_offered() -> None:
    """Nobody could run the call."""
    events = run(outs(encode(LS)), form=CALLS)
    assert (text(events), calls(events)) == (LS, [])
