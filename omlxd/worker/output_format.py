"""How a model marks what it thinks, and its tool calls, in the text that it writes.

Inferred from the chat template and the vocabulary, as `mlx_lm.tokenizer_utils` does for the same
formats; `tool_parser_type` in tokenizer_config.json decides where it is given.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

# Templates that name all of these write calls so. The first that fits counts.
_BY_TEMPLATE: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("harmony", ("<|channel|>", "<|message|>", "functions.")),
    ("minimax_m2", ("<minimax:tool_call>",)),
    ("gemma4", ("<|tool_call>", "<tool_call|>")),
    ("function_gemma", ("<start_function_call>",)),
    ("longcat", ("<longcat_tool_call>",)),
    ("glm47", ("<arg_key>",)),
    ("pythonic", ("<|tool_list_start|>",)),
    ("pythonic", ("<|tool_call_start|>",)),
    ("qwen3_coder", ("<tool_call>\\n<function=",)),
    ("qwen3_coder", ("<tool_call>\n<function=",)),
    ("kimi_k2", ("<|tool_calls_section_begin|>",)),
    ("minicpm5", ('<function name="', '<param name="')),
    ("mistral", ("[TOOL_CALLS]",)),
    ("muse_spark", ("<atem:function_calls>",)),
    ("json_tools", ("<tool_call>",)),
)
_BY_VOCABULARY: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("kimi_k3", ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>")),
    ("pythonic", ("<|tool_call_start|>", "<|tool_call_end|>")),
)
TAUGHT = "json_tools"  # for a template that knows no tools, see omlxd.worker.template


@dataclass(frozen=True, slots=True, kw_only=True)
class CallMarks:
    """What encloses a call, or several; `end` may be empty. `inner`: marks between the two."""

    start: str
    end: str
    inner: tuple[str, ...] = ()


CALL_MARKS = {
    "function_gemma": CallMarks(
        start="<start_function_call>", end="<end_function_call>", inner=("<escape>",)
    ),
    "gemma4": CallMarks(start="<|tool_call>", end="<tool_call|>", inner=('<|"|>',)),
    "glm47": CallMarks(
        start="<tool_call>",
        end="</tool_call>",
        inner=("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    ),
    "harmony": CallMarks(
        start="<|channel|>commentary to=functions.",
        end="<|call|>",
        inner=("<|constrain|>", "<|message|>"),
    ),
    "json_tools": CallMarks(start="<tool_call>", end="</tool_call>"),
    "kimi_k2": CallMarks(
        start="<|tool_calls_section_begin|>",
        end="<|tool_calls_section_end|>",
        inner=("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    ),
    "kimi_k3": CallMarks(
        start="<|open|>tools<|sep|>",
        end="<|close|>tools<|sep|>",
        inner=("<|open|>", "<|close|>", "<|sep|>"),
    ),
    "laguna": CallMarks(
        start="<tool_call>",
        end="</tool_call>",
        inner=("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    ),
    "longcat": CallMarks(
        start="<longcat_tool_call>",
        end="</longcat_tool_call>",
        inner=(
            "<longcat_arg_key>",
            "</longcat_arg_key>",
            "<longcat_arg_value>",
            "</longcat_arg_value>",
        ),
    ),
    "minicpm5": CallMarks(start="<function name=", end="</function>", inner=("<param", "</param>")),
    "minimax_m2": CallMarks(start="<minimax:tool_call>", end="</minimax:tool_call>"),
    "mistral": CallMarks(start="[TOOL_CALLS]", end="", inner=("[ARGS]", "[CALL_ID]")),
    "muse_spark": CallMarks(start="<atem:function_calls>", end="</atem:function_calls>"),
    "pythonic": CallMarks(start="<|tool_call_start|>", end="<|tool_call_end|>"),
    "qwen3_coder": CallMarks(start="<tool_call>", end="</tool_call>"),
}

_THINK_MARKS = (
    ("<think>", "</think>"),
    ("<longcat_think>", "</longcat_think>"),
    ("<|think:start|>", "<|think:end|>"),
    ("[THINK]", "[/THINK]"),
)
_HARMONY_THINK = ("<|channel|>analysis<|message|>", "<|end|>")
_GEMMA_THINK = ("<|channel>thought\n", "<channel|>")
_KIMI_THINK = ("<|open|>think<|sep|>", "<|close|>think<|sep|>")
# Marks around the answer itself: not part of it.
_DROPPED = {
    "harmony": (
        "<|start|>assistant",
        "<|channel|>final<|message|>",
        "<|channel|>commentary<|message|>",
    ),
    "kimi_k3": (
        "<|open|>response<|sep|>",
        "<|close|>response<|sep|>",
        "<|close|>message<|sep|>",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFormat:
    """The marks of one model. `think_start` is empty if it does not reason.

    `tools` is a key of `CALL_MARKS`. `is_taught`: the template knows no tools, so a system text
    has to tell of them, and of the format.
    """

    think_start: str = ""
    think_end: str = ""
    tools: str = TAUGHT
    is_taught: bool = True
    dropped: tuple[str, ...] = ()

    @property
    def calls(self) -> CallMarks:
        return CALL_MARKS[self.tools]

    def shown(self, special: Iterable[str]) -> frozenset[str]:
        """Which of a tokenizer's special tokens are, or are part of, a mark: they have text."""
        marks = (self.think_start, self.think_end, self.calls.start, self.calls.end)
        whole = " ".join((*marks, *self.calls.inner, *self.dropped))
        return frozenset(token for token in special if token in whole)


def output_format(tokenizer: Any) -> OutputFormat:
    """Of a transformers tokenizer with its chat template."""
    template = tokenizer.chat_template
    vocabulary = tokenizer.get_vocab()
    tools = _tools(
        template if isinstance(template, str) else "",
        vocabulary,
        tokenizer.init_kwargs.get("tool_parser_type"),
    )
    think_start, think_end = _think(tools, vocabulary)
    return OutputFormat(
        think_start=think_start,
        think_end=think_end,
        tools=tools or TAUGHT,
        is_taught=tools is None,
        dropped=_DROPPED.get(tools or "", ()),
    )


def _tools(template: str, vocabulary: Collection[str], named: object) -> str | None:
    if isinstance(named, str) and named in CALL_MARKS:
        return named
    by_template = (
        name for name, needles in _BY_TEMPLATE if all(needle in template for needle in needles)
    )
    by_vocabulary = (
        name for name, tokens in _BY_VOCABULARY if all(token in vocabulary for token in tokens)
    )
    return next(by_template, None) or next(by_vocabulary, None)


def _think(tools: str | None, vocabulary: Collection[str]) -> tuple[str, str]:
    if tools == "harmony":
        return _HARMONY_THINK
    for start, end in _THINK_MARKS:
        if start in vocabulary and end in vocabulary:
            return start, end
    if "<|channel>" in vocabulary and "<channel|>" in vocabulary:
        return _GEMMA_THINK
    return _KIMI_THINK if tools == "kimi_k3" else ("", "")
