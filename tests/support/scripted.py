"""Scripted models of several families: each calls tools in the way that its own template writes.

The same template that tells a model of its earlier calls makes the text of its next ones, so what
is read is what such a model was shown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment

from tests.support.models import make_scripted

Calls = Sequence[tuple[str, Mapping[str, Any]]]

# Writes `calls`, of which each has a name and arguments.
CALL_TEMPLATES = {
    "json_tools": r"""
{%- for call in calls -%}
<tool_call>{{ '\n' }}{"name": "{{ call.name }}", "arguments": {{ call.arguments | tojson }}}
{{- '\n' }}</tool_call>{{ '\n' if not loop.last }}
{%- endfor -%}""",
    "qwen3_coder": r"""
{%- for call in calls -%}
{{ '<tool_call>\n<function=' }}{{ call.name }}{{ '>\n' }}
{%- for key, value in call.arguments.items() -%}
{{ '<parameter=' + key + '>\n' }}{{ value }}{{ '\n</parameter>\n' }}
{%- endfor -%}
{{ '</function>\n</tool_call>' }}{{ '\n' if not loop.last }}
{%- endfor -%}""",
    "glm47": r"""
{%- for call in calls -%}
<tool_call>{{ call.name }}
{%- for key, value in call.arguments.items() -%}
<arg_key>{{ key }}</arg_key><arg_value>{{ value }}</arg_value>
{%- endfor -%}
</tool_call>{{ '\n' if not loop.last }}
{%- endfor -%}""",
    "mistral": r"""
{%- for call in calls -%}
[TOOL_CALLS]{{ call.name }}[ARGS]{{ call.arguments | tojson }}
{%- endfor -%}""",
    "gemma4": r"""
{%- for call in calls -%}
<|tool_call>call:{{ call.name }}{ {%- for key, value in call.arguments.items() -%}
{{ key }}:{{ '<|"|>' + value + '<|"|>' if value is string else value }}{{ ',' if not loop.last }}
{%- endfor -%} }<tool_call|>
{%- endfor -%}""",
    "pythonic": r"""
{%- if calls -%}<|tool_call_start|>[
{%- for call in calls -%}
{{ call.name }}({%- for key, value in call.arguments.items() -%}
{{ key }}={{ value | tojson }}{{ ', ' if not loop.last }}
{%- endfor -%}){{ ', ' if not loop.last }}
{%- endfor -%}]<|tool_call_end|>{%- endif -%}""",
    "harmony": r"""
{%- for call in calls -%}
<|channel|>commentary to=functions.{{ call.name }} <|constrain|>json<|message|>
{{- call.arguments | tojson }}<|call|>{{ '<|start|>assistant' if not loop.last }}
{%- endfor -%}""",
}
# Tokens that the tokenizers of these families call special, though they have a meaning.
_SPECIAL = {
    "gemma4": ('<|"|>', "<|tool_call>", "<tool_call|>"),
    "harmony": ("<|constrain|>", "<|message|>", "<|call|>"),
    "mistral": ("[TOOL_CALLS]", "[ARGS]"),
    "pythonic": ("<|tool_call_start|>", "<|tool_call_end|>"),
}
# The prompt ends with the last message, whose last character chooses the script.
_TEMPLATE = (
    "{%- if tools %}{{- 'tools: ' }}{%- for t in tools %}{{- t | tojson }}{%- endfor %}"
    "{{- '\n' }}{%- endif %}"
    "{%- for m in messages %}{{- m.role + ': ' }}{{- m.content or '' }}"
    "{%- set calls = (m.tool_calls or []) | map(attribute='function') | list %}[[calls]]"
    "{%- if not loop.last %}{{- '\n' }}{%- endif %}{%- endfor %}"
)


def written(form: str, calls: Calls) -> str:
    """These calls, as a model of that family writes them."""
    environment = Environment(autoescape=False)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    template = environment.from_string(CALL_TEMPLATES[form])
    return template.render(calls=[{"name": name, "arguments": given} for name, given in calls])


def make_family(folder: Path, form: str, texts: Mapping[str, str]) -> Path:
    """`folder/form`: a model that says a text where the prompt ends with its key, one character."""
    scripts = family_scripts(form, texts)
    template = _TEMPLATE.replace("[[calls]]", CALL_TEMPLATES[form])
    return make_scripted(folder / form, scripts, template=template, special=_SPECIAL.get(form, ()))


def family_scripts(form: str, texts: Mapping[str, str]) -> dict[str, list[str]]:
    """The tokens in which it says them."""
    special = _SPECIAL.get(form, ())
    scripts = in_pieces(texts, special)
    said = {piece for script in scripts.values() for piece in script}
    assert said >= set(special), "each special token is said by itself somewhere"
    return scripts


def in_pieces(texts: Mapping[str, str], alone: Sequence[str] = ()) -> dict[str, list[str]]:
    """Scripts that say these texts. A piece may stand once over all of them, so some are longer.

    `alone`: pieces by themselves, where they stand first.
    """
    seen = set(texts)  # a key has a successor already
    return {key: _pieces(text, alone, seen) for key, text in texts.items()}


def _pieces(text: str, alone: Sequence[str], seen: set[str]) -> list[str]:
    """Of one text, about three characters each, and none of `seen`, to which they are added."""
    pieces: list[str] = []
    at = 0
    while at < len(text):
        end = _piece_end(text, at, [mark for mark in alone if mark not in seen], seen)
        if end is None:
            # What is left was said before: it goes to the piece in front of it.
            at -= len(pieces[-1])
            seen.discard(pieces.pop())
            end = len(text)
        pieces.append(text[at:end])
        seen.add(pieces[-1])
        at = end
    return pieces


def _piece_end(text: str, at: int, alone: Sequence[str], seen: set[str]) -> int | None:
    for mark in alone:
        if text.startswith(mark, at):
            return at + len(mark)
    stops = [stop for mark in alone if (stop := text.find(mark, at + 1)) >= 0]
    end = min([at + 3, len(text), *stops])
    while text[at:end] in seen:
        if end == len(text):
            return None
        end += 1
    return end
