"""A call or two in every format, and the tools that they call."""

from __future__ import annotations

import json
from typing import Any

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
    (
        "gemma4",
        '<|tool_call>call:write{text:<|"|>a <tool_call|> }{ call:ls{}<|"|>, "path": "b\\n", '
        'tags:[<|"|>x, y<|"|>,{k:null}], force:true}call:ls{}<tool_call|>',
        [
            (
                "write",
                {
                    "text": "a <tool_call|> }{ call:ls{}",
                    "path": "b\n",
                    "tags": ["x, y", {"k": None}],
                    "force": True,
                },
            ),
            ("ls", {}),
        ],
    ),
    (
        "function_gemma",
        "<start_function_call>call:write{text:<escape>a}b<escape>,tags:[<escape>x<escape>,2],"
        "maybe:{a:1},path:plain words}<end_function_call>",
        [("write", {"text": "a}b", "tags": ["x", 2], "maybe": {"a": 1}, "path": "plain words"})],
    ),
    (
        "pythonic",
        "<|tool_call_start|>[write(text=\"x[f(a)] <|tool_call_end|> it's\", path='''a\nb''',"
        " tags=['\\d\\n', true, -1.5, {'k': (null, None)}], from=\"02134\", force=True),\n"
        "ls()]<|tool_call_end|>",
        [
            (
                "write",
                {
                    "text": "x[f(a)] <|tool_call_end|> it's",
                    "path": "a\nb",
                    "tags": ["\\d\n", True, -1.5, {"k": [None, None]}],
                    "from": "02134",
                    "force": True,
                },
            ),
            ("ls", {}),
        ],
    ),
    (
        "kimi_k3",
        '<|open|>tools<|sep|>\n<|open|>call tool="write" index="1"<|sep|>\n'
        '<|open|>argument key="text" type="string"<|sep|> a <|close|>tools<|sep|>\n'
        '<|close|>argument<|sep|><|open|>argument key="lines" type="number"<|sep|>5'
        '<|close|>argument<|sep|><|open|>argument key="a&quot;b" type="object"<|sep|>{"c": 1}'
        '<|close|>argument<|sep|><|close|>call<|sep|><|open|>call tool="ls" index="2"<|sep|>'
        '<|open|>json type="object"<|sep|>{"path": "x"}<|close|>json<|sep|><|close|>call<|sep|>'
        "<|close|>tools<|sep|>",
        [
            ("write", {"text": " a <|close|>tools<|sep|>\n", "lines": 5, 'a"b': {"c": 1}}),
            ("ls", {"path": "x"}),
        ],
    ),
    (
        "muse_spark",
        '<atem:function_calls>\n<atem:invoke name="write">\n<atem:parameter name="text"> a '
        f'</atem:function_calls>{NASTY}</atem:parameter>\n<atem:parameter name="lines">5'
        '</atem:parameter>\n</atem:invoke>\n<atem:invoke name="ls">\n</atem:invoke>\n'
        "</atem:function_calls>",
        [("write", {"text": f" a </atem:function_calls>{NASTY}", "lines": 5}), ("ls", {})],
    ),
]
