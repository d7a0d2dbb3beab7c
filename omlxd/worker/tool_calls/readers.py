"""Which reader reads which format."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from omlxd.worker.output_format import CALL_MARKS, OutputFormat
from omlxd.worker.tool_calls.json_calls import JsonCallReader, JsonFormat
from omlxd.worker.tool_calls.marked_calls import MarkedCallReader, MarkedFormat
from omlxd.worker.tool_calls.pieces import CallReader, Piece
from omlxd.worker.tool_calls.typed import Types, argument_types
from omlxd.worker.tool_calls.whole_calls import WholeCallReader
from omlxd.worker.tool_calls.whole_formats import WHOLE


def _name(group: str) -> str:
    """A value of an attribute, quoted or not, and the end of its tag."""
    return rf"""\s*["']?(?P<{group}>[^"'>\n]+)["']?\s*>"""


def _json(name: str, head: str = "", *, close: str = "", objects: bool = False) -> JsonFormat:
    marks = CALL_MARKS[name]
    return JsonFormat(
        start=marks.start,
        end=marks.end,
        head=re.compile(head + r"\s*(?=\{)", re.DOTALL) if head else None,
        close=close,
        objects=objects or not head,
    )


def _keyed(name: str, prefix: str = "") -> MarkedFormat:
    """A name, then pairs of marked key and marked value."""
    key, value = f"{prefix}arg_key", f"{prefix}arg_value"
    return MarkedFormat(
        start=CALL_MARKS[name].start,
        name=re.compile(r"\s*(?P<name>[^<\s]+)\s*(?=<)"),
        opens=f"<{key}>",
        key=re.compile(rf"\s*<{key}>(?P<key>[^<]*)</{key}>\s*<{value}>"),
        close=f"</{value}>",
        ends=(CALL_MARKS[name].end,),
    )


def _tagged(name: str, head: str, tag: str, **settings: bool) -> MarkedFormat:
    """Tags `<head name="NAME">` and `<tag name="KEY">`; the start mark may open the first."""
    marks = CALL_MARKS[name]
    opened = marks.start.startswith(f"<{head}")
    return MarkedFormat(
        start=marks.start,
        name=re.compile((r"\s*" if opened else rf"\s*<{head}\s+name\s*=") + _name("name")),
        opens=f"<{tag}",
        key=re.compile(rf"\s*<{tag}\s+name\s*=" + _name("key")),
        close=f"</{tag}>",
        ends=(marks.end,) if opened else (f"</{head}>", marks.end),
        **settings,
    )


_JSON = {
    "json_tools": _json("json_tools"),
    "mistral": _json(
        "mistral",
        r"(?P<name>[\w.-]+)\s*(?:\[CALL_ID\][\w-]*\s*)?\[ARGS\]",
        close="[TOOL_CALLS]",
        objects=True,
    ),
    "kimi_k2": _json(
        "kimi_k2",
        r"<\|tool_call_begin\|>\s*(?:functions\.)?(?P<name>[^:<\s]+)(?::\d+)?\s*"
        r"<\|tool_call_argument_begin\|>",
        close="<|tool_call_end|>",
    ),
    "harmony": _json("harmony", r"(?P<name>[^<\s]+)[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>"),
}
_MARKED = {
    "glm47": _keyed("glm47"),
    "laguna": _keyed("laguna"),
    "longcat": _keyed("longcat", "longcat_"),
    "minicpm5": _tagged("minicpm5", "function", "param", cdata=True),
    "minimax_m2": _tagged("minimax_m2", "invoke", "parameter"),
    "muse_spark": _tagged("muse_spark", "atem:invoke", "atem:parameter"),
    "qwen3_coder": MarkedFormat(
        start=CALL_MARKS["qwen3_coder"].start,
        name=re.compile(r"\s*<function=(?P<name>[^>\n]+)>"),
        opens="<parameter=",
        key=re.compile(r"\s*<parameter=(?P<key>[^>\n]+)>"),
        close="</parameter>",
        ends=("</function>", CALL_MARKS["qwen3_coder"].end),
        breaks=True,
    ),
}


def call_reader(form: OutputFormat, tools: Sequence[Mapping[str, Any]]) -> CallReader:
    """For one envelope. `tools` are those that were offered, as in `GenerateRequest.tools`."""
    types = argument_types(tools)
    if (json_format := _JSON.get(form.tools)) is not None:
        return JsonCallReader(json_format, types)
    if (marked := _MARKED.get(form.tools)) is not None:
        return _MarkedOrJson(marked, types)
    return WholeCallReader(form.calls, WHOLE[form.tools], types)


class _MarkedOrJson:
    """Models of the marked formats now and then write a call as a JSON object."""

    def __init__(self, form: MarkedFormat, types: Mapping[str, Mapping[str, Types]]) -> None:
        self._form, self._types = form, types
        self._blanks = ""
        self._reader: CallReader | None = None

    @property
    def rest(self) -> str | None:
        return None if self._reader is None else self._reader.rest

    def feed(self, text: str) -> Sequence[Piece]:
        if self._reader is None:
            self._blanks += text
            if not self._blanks.strip():
                return []
            text, self._reader = self._blanks, self._choose()
        return self._reader.feed(text)

    def end(self) -> Sequence[Piece]:
        if self._reader is None:
            self._reader = self._choose()
            return [*self._reader.feed(self._blanks), *self._reader.end()]
        return self._reader.end()

    def _choose(self) -> CallReader:
        if not self._blanks.lstrip().startswith("{"):
            return MarkedCallReader(self._form, self._types)
        form = JsonFormat(start=self._form.start, end=self._form.ends[-1])
        return JsonCallReader(form, self._types)
