"""Every format of tool calls, under any chunking."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlxd.worker.output_format import CALL_MARKS, OutputFormat
from omlxd.worker.reasoning import Said
from omlxd.worker.tool_calls.pieces import Arguments, Began, Broken, Ended
from omlxd.worker.tool_calls.readers import call_reader
from omlxd.worker.tool_calls.splitter import CallSplitter

Call = tuple[str, Any]


def tool(name: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "$defs": {"n": {"type": "integer"}}}
    return {"type": "function", "function": {"name": name, "description": "", "parameters": schema}}


TOOLS = [
    tool(
        "write",
        path={"type": "string"},
        text={"type": "string"},
        lines={"type": "integer"},
        force={"type": "boolean"},
        ratio={"type": "number"},
        tags={"type": "array"},
        maybe={"anyOf": [{"type": "null"}, {"$ref": "#/$defs/n"}]},
    ),
    tool("ls"),
]


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


NASTY = 'a "b" </parameter> </tool_call>\n\tč 😀 <b> \\n end'
JSON_ARGUMENTS = json.dumps({"path": "a/b", "text": NASTY, "lines": 5}, ensure_ascii=False)
ARGUMENTS = {"path": "a/b", "text": NASTY, "lines": 5}
WRITE = ("write", ARGUMENTS)

SAMPLES: list[tuple[str, str, list[Call]]] = [
    (
        "json_tools",
        f'<tool_call>\n{{"name": "write", "arguments": {JSON_ARGUMENTS}}}\n</tool_call>\n'
        '<tool_call>\n{"arguments": {"a": 1}, "name": "ls"}\n</tool_call>',
        [WRITE, ("ls", {"a": 1})],
    ),
    ("json_tools", '<tool_call>{"name":"ls"}</tool_call>', [("ls", {})]),
    (
        "json_tools",
        '<tool_call>{"name": "ls", "arguments": "{\\"a\\": [1]}"}</tool_call>',
        [("ls", {"a": [1]})],
    ),
    (
        "json_tools",
        '<tool_call>[{"name": "ls", "arguments": {}}, '
        '{"name": "ls", "parameters": {}}]</tool_call>',
        [("ls", {}), ("ls", {})],
    ),
    (
        "json_tools",
        '<tool_call>{"name": "ls", "arguments": {"a": "x\ny"}, "id": "1"}',
        [("ls", {"a": "x\ny"})],
    ),
    ("mistral", f"[TOOL_CALLS]write[ARGS]{JSON_ARGUMENTS}", [WRITE]),
    (
        "mistral",
        f"[TOOL_CALLS]write[ARGS]{JSON_ARGUMENTS}[TOOL_CALLS]ls[CALL_ID]a1[ARGS]{{}}",
        [WRITE, ("ls", {})],
    ),
    (
        "mistral",
        f'[TOOL_CALLS][{{"name": "write", "arguments": {JSON_ARGUMENTS}}}, '
        '{"name": "ls", "arguments": {}}]',
        [WRITE, ("ls", {})],
    ),
    (
        "kimi_k2",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.write:0"
        f"<|tool_call_argument_begin|>{JSON_ARGUMENTS}<|tool_call_end|>"
        "<|tool_call_begin|>functions.ls:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
        "<|tool_calls_section_end|>",
        [WRITE, ("ls", {})],
    ),
    (
        "harmony",
        "<|channel|>commentary to=functions.write <|constrain|>json<|message|>"
        f"{JSON_ARGUMENTS}<|call|>",
        [WRITE],
    ),
    (
        "harmony",
        "<|channel|>commentary to=functions.ls<|message|>{}",
        [("ls", {})],
    ),
    (
        "qwen3_coder",
        "<tool_call>\n<function=write>\n<parameter=path>\na/b\n</parameter>\n<parameter=text>\n"
        f"{NASTY}\n</parameter>\n<parameter=lines>\n5\n</parameter>\n</function>\n</tool_call>\n"
        "<tool_call>\n<function=ls>\n</function>\n</tool_call>",
        [WRITE, ("ls", {})],
    ),
    (
        "qwen3_coder",
        "<tool_call><function=write><parameter=text>\n\nx\n\n</parameter>"
        "<parameter=path>02134</parameter><parameter=lines>5.0</parameter>"
        "<parameter=force>True</parameter><parameter=ratio>1.5</parameter>"
        "<parameter=tags>['a']</parameter><parameter=maybe>null</parameter>"
        "<parameter=other>17</parameter></function></tool_call>",
        [
            (
                "write",
                {
                    "text": "\nx\n",
                    "path": "02134",
                    "lines": 5,
                    "force": True,
                    "ratio": 1.5,
                    "tags": ["a"],
                    "maybe": None,
                    "other": "17",
                },
            )
        ],
    ),
    (
        "qwen3_coder",
        "<tool_call><function=write><parameter=lines>many</parameter></function></tool_call>",
        [("write", {"lines": "many"})],
    ),
    (
        "glm47",
        "<tool_call>write\n<arg_key>path</arg_key>\n<arg_value>a/b</arg_value>\n"
        f"<arg_key>text</arg_key>\n<arg_value>{NASTY}</arg_value>\n"
        "<arg_key>lines</arg_key><arg_value>5</arg_value></tool_call>",
        [WRITE],
    ),
    ("glm47", "<tool_call>ls</tool_call>", [("ls", {})]),
    ("laguna", '<tool_call>{"name": "ls", "arguments": {}}</tool_call>', [("ls", {})]),
    (
        "longcat",
        "<longcat_tool_call>write\n<longcat_arg_key>text</longcat_arg_key>"
        f"<longcat_arg_value>{NASTY}</longcat_arg_value></longcat_tool_call>",
        [("write", {"text": NASTY})],
    ),
    (
        "minimax_m2",
        '<minimax:tool_call>\n<invoke name="write">\n<parameter name="text">'
        f'{NASTY}</parameter>\n<parameter name="lines">5</parameter>\n</invoke>\n'
        '<invoke name="ls">\n</invoke>\n</minimax:tool_call>',
        [("write", {"text": NASTY, "lines": 5}), ("ls", {})],
    ),
    (
        "minicpm5",
        f'<function name="write"><param name="text"><![CDATA[{NASTY}]]></param>'
        '<param name="lines">5</param></function><function name="ls"></function>',
        [("write", {"text": NASTY, "lines": 5}), ("ls", {})],
    ),
    (
        "gemma4",
        '<|tool_call>call:write{path:<|"|>a{b<|"|>,lines:5}<tool_call|>',
        [("write", {"path": "a{b", "lines": 5})],
    ),
    (
        "function_gemma",
        "<start_function_call>call:write{path:<escape>a,b<escape>,lines:5}<end_function_call>",
        [("write", {"path": "a,b", "lines": 5})],
    ),
    (
        "pythonic",
        '<|tool_call_start|>[write(path="a)b", lines=5), ls()]<|tool_call_end|>',
        [("write", {"path": "a)b", "lines": 5}), ("ls", {})],
    ),
]


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
