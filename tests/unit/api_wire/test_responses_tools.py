"""Tools of a responses request: offered under flat names, called back by the client's own."""

from __future__ import annotations

from typing import Any

import pytest

from omlxd.api.wire.responses_tools import (
    CUSTOM_INPUT,
    Origin,
    Tools,
    offered_name,
    read_choice,
    read_tools,
)
from omlxd.errors import RequestInvalid
from omlxd.ipc.messages import ToolChoice

LS = {"type": "function", "name": "ls", "parameters": {"type": "object"}, "strict": False}
CAT = {"type": "function", "name": "cat"}
WEB = {"type": "web_search", "external_web_access": True}
PATCH = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edits files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "x"'},
}
FILES = {"type": "namespace", "name": "mcp__files", "description": "On disk.", "tools": [LS, CAT]}


def offered(*sent: Any) -> list[dict[str, Any]]:
    return [tool["function"] for tool in read_tools(list(sent)).offered]


def names(*sent: Any) -> list[str]:
    return [function["name"] for function in offered(*sent)]


def test_functions_are_offered_as_they_are() -> None:
    """Without what only OpenAI reads, and in the order in which they came."""
    assert offered(LS, CAT) == [
        {"name": "ls", "description": "", "parameters": {"type": "object", "properties": {}}},
        {"name": "cat", "description": "", "parameters": {"type": "object", "properties": {}}},
    ]
    assert names({"type": "function", "function": {"name": "deep"}}) == ["deep"]
    assert read_tools(None) == Tools()


def test_what_only_openais_servers_run_is_left_out() -> None:
    """It is no reason to refuse the rest."""
    tools = read_tools([WEB, LS, {"type": "tool_search", "execution": "client"}])
    assert [tool["function"]["name"] for tool in tools.offered] == ["ls"]
    assert tools.left_out == {"web_search", "tool_search"}


def test_a_namespace_becomes_part_of_the_name() -> None:
    """Its description stands once, with its first tool; the call goes back in two parts."""
    tools = read_tools([LS, FILES])
    first, second, third = (tool["function"] for tool in tools.offered)
    assert [first["name"], second["name"], third["name"]] == [
        "ls",
        "mcp__files__ls",
        "mcp__files__cat",
    ]
    assert second["description"] == "Of all tools in mcp__files: On disk."
    assert third["description"] == ""
    assert tools.origin("mcp__files__cat") == Origin(name="cat", namespace="mcp__files")
    assert tools.origin("ls") == Origin(name="ls")


@pytest.mark.parametrize(
    ("namespace", "name", "flat"),
    [
        ("crm", "find", "crm__find"),
        ("mcp__crm__", "find", "mcp__crm__find"),
        ("crm", "__find", "crm__find"),
        ("functions", "find", "find"),
        ("", "find", "find"),
        (None, "find", "find"),
    ],
)
def test_joined_names(namespace: str | None, name: str, flat: str) -> None:
    """Two underscores stand between both; the namespace of everything else is none."""
    assert offered_name(name, namespace) == flat


def test_two_tools_with_one_name_are_refused() -> None:
    """Nobody could tell which of them a call is for; the same tool twice does no harm."""
    with pytest.raises(RequestInvalid, match=r"tools\[1\]\.tools\[1\].name: there are two tools"):
        read_tools([{"type": "function", "name": "mcp__files__cat"}, FILES])
    with pytest.raises(RequestInvalid, match="there are two tools 'ls'"):
        read_tools([LS, {"type": "custom", "name": "ls"}])
    assert names(LS, LS) == ["ls", "ls"]


def test_a_custom_tool_is_a_function_of_one_string() -> None:
    """What the string has to look like is told to the model."""
    (patch,) = offered(PATCH)
    assert patch["description"] == (
        'Edits files.\n\nThe string `input` must match this lark:\nstart: "x"'
    )
    assert patch["parameters"]["properties"] == {CUSTOM_INPUT: {"type": "string"}}
    assert patch["parameters"]["required"] == [CUSTOM_INPUT]
    assert read_tools([PATCH]).origin("apply_patch").is_custom
    (free,) = offered({"type": "custom", "name": "say", "format": {"type": "text"}})
    assert free["description"] == "The string `input` is free text."
    (bare,) = offered({"type": "custom", "name": "say"})
    assert bare == free


@pytest.mark.parametrize(
    ("sent", "param"),
    [
        ("ls", "tools"),
        ([7], "tools[0]"),
        ([{"type": "function"}], "tools[0]"),
        ([{"type": "function", "name": "f", "parameters": []}], "tools[0]"),
        ([{"type": "namespace", "tools": []}], "tools[0]"),
        ([{"type": "namespace", "name": "n", "tools": [{}]}], "tools[0].tools[0]"),
        ([{"type": "namespace", "name": "n", "tools": 7}], "tools[0].tools"),
        ([{"type": "custom", "name": "c", "format": "lark"}], "tools[0]"),
    ],
)
def test_what_cannot_be_read(sent: Any, param: str) -> None:
    """Refused with its place."""
    with pytest.raises(RequestInvalid) as caught:
        read_tools(sent)
    assert caught.value.param == param


def choice(value: Any, *sent: Any, parallel: bool = True) -> ToolChoice:
    return read_choice(value, read_tools(list(sent)), parallel=parallel)


def test_choices_by_word() -> None:
    """Each means what it says."""
    assert choice(None, LS) == choice("auto", LS) == ToolChoice()
    assert choice("none", LS) == ToolChoice(mode="none")
    assert choice("required", LS, parallel=False) == ToolChoice(mode="required", parallel=False)


def test_choices_by_name() -> None:
    """The client's name becomes the one that is offered."""
    forced = ToolChoice(mode="required", names=["ls"])
    assert choice({"type": "function", "name": "ls"}, LS) == forced
    assert choice({"type": "function", "function": {"name": "ls"}}, LS) == forced
    custom = {"type": "custom", "name": "apply_patch"}
    assert choice(custom, PATCH).names == ["apply_patch"]
    inner = {"type": "function", "name": "cat", "namespace": "mcp__files"}
    assert choice(inner, FILES).names == ["mcp__files__cat"]


def test_allowed_tools() -> None:
    """Some of what is offered; if nothing of it is, no call at all."""
    wanted = {"type": "allowed_tools", "mode": "required", "tools": [CAT, WEB]}
    assert choice(wanted, LS, CAT) == ToolChoice(mode="required", names=["cat"])
    group = {"type": "allowed_tools", "tools": [{"type": "namespace", "name": "mcp__files"}]}
    assert choice(group, LS, FILES) == ToolChoice(names=["mcp__files__ls", "mcp__files__cat"])
    hosted = {"type": "allowed_tools", "mode": "auto", "tools": [WEB]}
    assert choice(hosted, LS, WEB) == ToolChoice(mode="none")


def test_a_choice_of_what_was_left_out() -> None:
    """Text is what can be had then."""
    assert choice({"type": "web_search"}, LS, WEB) == ToolChoice()
    assert choice("required", WEB) == ToolChoice()


@pytest.mark.parametrize(
    ("value", "param"),
    [
        ("always", "tool_choice"),
        (7, "tool_choice"),
        ({"type": "web_search"}, "tool_choice"),
        ({"type": ["function"]}, "tool_choice"),
        ({"type": "function"}, "tool_choice.name"),
        ({"type": "function", "name": "dig"}, "tool_choice"),
        ({"type": "allowed_tools", "mode": "never"}, "tool_choice.mode"),
        ({"type": "allowed_tools", "tools": [{"name": 7}]}, "tool_choice.tools[0].name"),
        ({"type": "allowed_tools", "tools": [{"name": "dig"}]}, "tool_choice"),
    ],
)
def test_choices_that_are_refused(value: Any, param: str) -> None:
    """Of another form, or of a tool that was not sent."""
    with pytest.raises(RequestInvalid) as caught:
        choice(value, LS)
    assert caught.value.param == param


def test_a_call_that_is_required_of_no_tools_is_refused() -> None:
    """It could never come."""
    with pytest.raises(RequestInvalid, match="no tools were sent"):
        choice("required")
