"""Tools and tool choices of a messages request."""

from __future__ import annotations

from typing import Any

import pytest

from omlxd.api.wire.anthropic_tools import Tools, read_choice, read_tools
from omlxd.api.wire.tools import names
from omlxd.errors import RequestInvalid
from omlxd.ipc.messages import ToolChoice

LS = {"name": "ls", "description": "Lists.", "input_schema": {"type": "object", "properties": {}}}
FIND = {**LS, "name": "find", "defer_loading": True}
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}


def read(*sent: Any) -> Tools:
    return read_tools(list(sent))


@pytest.mark.parametrize("kind", [{}, {"type": "custom"}, {"type": None}, {"type": "later_1"}])
def test_a_tool_with_or_without_a_type(kind: dict[str, Any]) -> None:
    """Keys that say nothing to a model are left out."""
    assert read({**LS, **kind, "cache_control": {}, "eager_input_streaming": True}).shown == [
        {
            "type": "function",
            "function": {
                "name": "ls",
                "description": "Lists.",
                "parameters": {"type": "object", "properties": {}},
            },
        }
    ]


def test_what_only_anthropic_runs_is_left_out() -> None:
    """No refusal: the client can do without."""
    assert read(SEARCH, LS, {"type": "bash_20250124", "name": "bash"}) == Tools(
        shown=read(LS).shown, foreign=["web_search", "bash"]
    )


def test_deferred_tools_are_hidden() -> None:
    """Until a reference introduces them."""
    tools = read(FIND, LS)
    assert (names(tools.shown), list(tools.hidden)) == (["ls"], ["find"])


def test_deferred_tools_are_shown_where_nothing_could_find_them() -> None:
    """A search that Anthropic runs does not run here."""
    tools = read({"type": "tool_search_tool_regex_20251119", "name": "search"}, FIND, LS)
    assert (names(tools.shown), tools.hidden) == (["ls", "find"], {})


@pytest.mark.parametrize(
    "sent", ["ls", [7], [{"input_schema": {}}], [{"name": "x", "input_schema": 1}]]
)
def test_what_is_no_tool_is_refused(sent: Any) -> None:
    """With its place."""
    with pytest.raises(RequestInvalid, match="tools"):
        read_tools(sent)


@pytest.mark.parametrize(
    ("sent", "choice"),
    [
        (None, ToolChoice()),
        ({"type": "auto"}, ToolChoice()),
        ({"type": "auto", "disable_parallel_tool_use": True}, ToolChoice(parallel=False)),
        ({"type": "any", "disable_parallel_tool_use": False}, ToolChoice(mode="required")),
        ({"type": "none"}, ToolChoice(mode="none")),
        ({"type": "tool", "name": "ls"}, ToolChoice(mode="required", names=["ls"])),
        ({"type": "tool", "name": "find"}, ToolChoice(mode="required", names=["find"])),
        ({"type": "tool", "name": "web_search"}, ToolChoice()),
    ],
)
def test_choices(sent: Any, choice: ToolChoice) -> None:
    """A tool that was left out cannot be forced: then text is what there is."""
    assert read_choice(sent, read(LS, FIND, SEARCH)) == choice


def test_any_of_no_tools() -> None:
    """Refused, but for tools that were left out."""
    assert read_choice({"type": "any"}, read(SEARCH)) == ToolChoice()
    with pytest.raises(RequestInvalid, match="no tools were sent"):
        read_choice({"type": "any"}, read())


@pytest.mark.parametrize(
    "sent", ["auto", {}, {"type": "all"}, {"type": "tool"}, {"type": "tool", "name": "rm"}]
)
def test_other_choices_are_refused(sent: Any) -> None:
    """With the key's name."""
    with pytest.raises(RequestInvalid, match=r"^tool_choice"):
        read_choice(sent, read(LS))
