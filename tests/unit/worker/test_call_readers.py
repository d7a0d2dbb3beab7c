"""Every format of tool calls, under any chunking."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlxd.worker.output_format import CALL_MARKS, OutputFormat
from omlxd.worker.reasoning import Said
from omlxd.worker.tool_calls.pieces import Arguments, Began, Broken, Ended
from omlxd.worker.tool_calls.readers import call_reader
from omlxd.worker.tool_calls.splitter import CallSplitter
from tests.support.call_samples import SAMPLES, TOOLS, Call


def read(text: str, form: str, chunks: Sequence[str] | None = None) -> tuple[list[Call], str, str]:
    """Complete calls, all that is text, and of it that of calls that were given up."""
    marks = OutputFormat(tools=form)
    splitter = CallSplitter(marks.calls.start, lambda: call_reader(marks, TOOLS))
    parts = [part for chunk in chunks or [text] for part in splitter.feed(chunk)]
    parts += splitter.feed("", final=True)
    calls: list[Call] = []
    said, broken, name, arguments = "", "", "", ""
    for part in parts:
        match part:
            case Said():
                said += part.text
            case Began():
                name, arguments = part.name, ""
            case Arguments():
                arguments += part.text
            case Ended():
                calls.append((name, json.loads(arguments)))
            case Broken():
                said += part.text
                broken += part.text
    return calls, said, broken


@pytest.mark.parametrize(("form", "text", "calls"), SAMPLES)
def test_calls_are_read_whole_and_letter_by_letter(form: str, text: str, calls: list[Call]) -> None:
    """Names, typed arguments and strings to the byte; nothing of the markup is text."""
    assert read(text, form) == (calls, "", "")
    assert read(text, form, list(text)) == (calls, "", "")


@given(st.sampled_from(SAMPLES), st.data())
def test_any_chunking_gives_the_same_calls(
    sample: tuple[str, str, list[Call]], data: st.DataObject
) -> None:
    """Wherever the text is parted."""
    form, text, calls = sample
    text = f"so:\n{text}"
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=6)))
    chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert read(text, form, chunks) == (calls, "so:", "")


@given(st.sampled_from(SAMPLES), st.data())
def test_whatever_is_damaged_comes_out_the_same_and_whole(
    sample: tuple[str, str, list[Call]], data: st.DataObject
) -> None:
    """Cut short, or with a part left out: no error, and what is no call is still there."""
    form, text, _ = sample
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, len(text)))
    damaged = text[:begin] + text[end:] if data.draw(st.booleans()) else text[:end]
    found = read(damaged, form)
    assert read(damaged, form, list(damaged)) == found
    calls, said, _ = found
    if not calls:
        assert said == damaged


@given(st.sampled_from(sorted(CALL_MARKS)), st.text('<>/{}[]"=:,\\ \nabwritels_|', max_size=40))
def test_arbitrary_text_is_never_an_error(form: str, text: str) -> None:
    """Behind a start mark may come anything."""
    text = CALL_MARKS[form].start + text
    calls, said, _ = read(text, form, list(text))
    assert calls or said == text


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("json_tools", '<tool_call>{"name": "rm", "arguments": {"path": "/"}}</tool_call> hm'),
        ("json_tools", "<tool_call>{'name': 'ls', 'arguments': {}}</tool_call>"),
        ("json_tools", '<tool_call>{"name": "ls", "arguments": {"a": NaN}}</tool_call>'),
        ("json_tools", "a <tool_call> is a mark"),
        ("qwen3_coder", "<tool_call>\n<function=rm>\n</function>\n</tool_call>"),
        ("glm47", "<tool_call>rm</tool_call>"),
        ("mistral", "[TOOL_CALLS]rm[ARGS]{}"),
        ("pythonic", "<|tool_call_start|>[rm()]<|tool_call_end|>"),
        ("kimi_k3", "<|open|>tools<|sep|>nothing<|close|>tools<|sep|>"),
    ],
)
def test_what_cannot_be_run_is_text(form: str, text: str) -> None:
    """Unknown tools and broken markup alike, to the byte."""
    assert read(text, form)[:2] == ([], text)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("json_tools", '<tool_call>{"name": "write", "arguments": {"text": "abc'),
        ("qwen3_coder", "<tool_call><function=write><parameter=text>abc"),
        ("mistral", '[TOOL_CALLS]write[ARGS]{"text": "abc'),
        ("glm47", "<tool_call>write<arg_key>text</arg_key><arg_value>abc"),
    ],
)
def test_arguments_come_while_they_are_written(form: str, text: str) -> None:
    """A client sees a long string grow; what is cut inside is told whole."""
    marks = OutputFormat(tools=form)
    reader = call_reader(marks, TOOLS)
    pieces = [p for letter in text.removeprefix(marks.calls.start) for p in reader.feed(letter)]
    assert pieces[0] == Began("write")
    assert "".join(p.text for p in pieces if isinstance(p, Arguments)).endswith('"abc')
    assert reader.end() == [Broken(text)]


def test_a_broken_call_leaves_those_before_it() -> None:
    """Only what is not part of a complete call is told as broken."""
    text = '[TOOL_CALLS]ls[ARGS]{}[TOOL_CALLS]write[ARGS]{"text": "ab'
    assert read(text, "mistral") == (
        [("ls", {})],
        'write[ARGS]{"text": "ab',
        'write[ARGS]{"text": "ab',
    )


@pytest.mark.parametrize(
    ("form", "text", "calls", "left"),
    [
        (
            "muse_spark",
            '<atem:function_calls><atem:invoke name="write"><atem:parameter name="text">abc',
            [],
            '<atem:function_calls><atem:invoke name="write"><atem:parameter name="text">abc',
        ),
        (
            "gemma4",
            '<|tool_call>call:write{text:<|"|>a call:ls{} b',
            [],
            '<|tool_call>call:write{text:<|"|>a call:ls{} b',
        ),
        (
            "gemma4",
            '<|tool_call>call:ls{}call:write{path:<|"|>ab',
            [("ls", {})],
            'call:write{path:<|"|>ab',
        ),
        ("gemma4", "<|tool_call>call:ls{} hm<tool_call|>", [("ls", {})], " hm<tool_call|>"),
        (
            "pythonic",
            '<|tool_call_start|>[write(text="x = f(a)] more',
            [],
            '<|tool_call_start|>[write(text="x = f(a)] more',
        ),
        (
            "pythonic",
            '<|tool_call_start|>[ls(), write(text="x [ls()] a',
            [("ls", {})],
            ', write(text="x [ls()] a',
        ),
        (
            "kimi_k3",
            '<|open|>tools<|sep|><|open|>call tool="ls"<|sep|><|close|>call<|sep|>'
            '<|open|>call tool="write"<|sep|><|open|>argument key="text"<|sep|>ab',
            [("ls", {})],
            '<|open|>call tool="write"<|sep|><|open|>argument key="text"<|sep|>ab',
        ),
        (
            "pythonic",
            "<|tool_call_start|>[rm()]<|tool_call_end|> no <|tool_call_start|>[ls()]"
            "<|tool_call_end|>",
            [("ls", {})],
            "<|tool_call_start|>[rm()]<|tool_call_end|> no",
        ),
    ],
)
def test_half_a_call_is_never_a_call(form: str, text: str, calls: list[Call], left: str) -> None:
    """What is cut, or stands between, is text; the calls that are whole are calls."""
    assert read(text, form)[:2] == (calls, left)
    assert read(text, form, list(text))[:2] == (calls, left)


@pytest.mark.parametrize(("form", "text", "calls"), SAMPLES)
def test_a_cut_gives_the_first_calls_only(form: str, text: str, calls: list[Call]) -> None:
    """Wherever the text ends: whole calls, as they were meant, and never a part of one."""
    for end in range(len(text)):
        found = read(text[:end], form)[0]
        assert found == calls[: len(found)], text[:end]
