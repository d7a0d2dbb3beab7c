"""How a model's marks are told from its template and vocabulary."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from omlxd.worker.output_format import CALL_MARKS, OutputFormat, output_format
from tests.support.tokenizers import chat_tokenizer


class Paper:
    """As much of a tokenizer as is looked at."""

    def __init__(self, template: str, tokens: str = "", **config: Any) -> None:
        self.chat_template, self.init_kwargs = template, config
        self._vocabulary = {token: number for number, token in enumerate(tokens.split())}

    def get_vocab(self) -> dict[str, int]:
        return self._vocabulary


@pytest.mark.parametrize(
    ("tokenizer", "tools", "think_start"),
    [
        (Paper("<tool_call>{{ tool_call.name }}", "<think> </think>"), "json_tools", "<think>"),
        (Paper("<tool_call>\n<function=", "<think> </think>"), "qwen3_coder", "<think>"),
        (Paper("<arg_key> <tool_call>"), "glm47", ""),
        (Paper("<arg_key>", tool_parser_type="laguna"), "laguna", ""),
        (Paper("[TOOL_CALLS]", "[THINK] [/THINK]"), "mistral", "[THINK]"),
        (
            Paper("<|channel|> <|message|> functions."),
            "harmony",
            "<|channel|>analysis<|message|>",
        ),
        (
            Paper("<|tool_call> <tool_call|>", "<|channel> <channel|>"),
            "gemma4",
            "<|channel>thought\n",
        ),
    ],
)
def test_formats_are_inferred(tokenizer: Paper, tools: str, think_start: str) -> None:
    """From what only that family writes; the tokenizer's own word wins."""
    form = output_format(tokenizer)
    assert (form.tools, form.think_start, form.is_taught) == (tools, think_start, False)


def test_a_template_without_tools_is_taught() -> None:
    """Its model gets to know the tools, and how to call them, from a text."""
    form = output_format(Paper("{{ messages }}"))
    assert (form.is_taught, form.tools) == (True, "json_tools")
    assert output_format(chat_tokenizer(None)).is_taught


def test_special_tokens_that_are_marks_have_text() -> None:
    """Also those inside a longer mark; all others have none."""
    form = OutputFormat(tools="kimi_k2", think_start="<think>", think_end="</think>")
    special = ["<|im_end|>", "<|tool_call_begin|>", "<think>", "<|tool_calls_section_end|>"]
    assert form.shown(special) == {
        "<|tool_call_begin|>",
        "<think>",
        "<|tool_calls_section_end|>",
    }


@pytest.mark.parametrize("name", sorted(CALL_MARKS.keys() - {"harmony"}))
def test_marks_are_those_of_the_library(name: str) -> None:
    """Every format but our own is one that mlx-lm reads, with the same marks."""
    module = importlib.import_module(f"mlx_lm.tool_parsers.{name}")
    marks = CALL_MARKS[name]
    assert (marks.start, marks.end) == (module.tool_call_start, module.tool_call_end)
