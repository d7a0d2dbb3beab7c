"""Tools and tool choices in the neutral form."""

from __future__ import annotations

import pytest

from omlxd.api.wire.tools import definition, function_tool, named
from omlxd.errors import RequestInvalid
from omlxd.ipc.messages import ToolChoice


def test_what_clients_leave_out_is_filled_in() -> None:
    """Neither a description nor a schema is needed."""
    assert function_tool("ls", None, None, "tools[0]") == {
        "type": "function",
        "function": {
            "name": "ls",
            "description": "",
            "parameters": {"type": "object", "properties": {}},
        },
    }


@pytest.mark.parametrize(("name", "schema"), [(None, {}), ("", {}), ("ls", []), ("ls", "x")])
def test_a_tool_without_a_name_or_with_no_schema_is_refused(name: object, schema: object) -> None:
    """The place is named."""
    with pytest.raises(RequestInvalid, match=r"tools\[0\]"):
        function_tool(name, "", schema, "tools[0]")


def test_a_choice_names_tools_that_were_sent() -> None:
    """Another name is refused, as is a required call without tools."""
    tools = [function_tool("ls", "", None, "tools[0]")]
    choice = ToolChoice(mode="required", names=["ls"])
    assert named(choice, tools, "tool_choice") is choice
    with pytest.raises(RequestInvalid, match="no tool 'rm' in tools, which has ls"):
        named(ToolChoice(mode="required", names=["rm"]), tools, "tool_choice")
    with pytest.raises(RequestInvalid, match="no tools were sent"):
        named(ToolChoice(mode="required"), [], "tool_choice")
    with pytest.raises(RequestInvalid, match="no tool 'rm' in tools, which has none"):
        named(ToolChoice(names=["rm"]), [], "tool_choice")


def test_a_definition_does_not_depend_on_the_order_of_keys() -> None:
    """So the prompt is the same whoever wrote the schema."""
    one = function_tool("f", "", {"type": "object", "properties": {}}, "tools[0]")
    other = function_tool("f", "", {"properties": {}, "type": "object"}, "tools[0]")
    assert definition(one) == definition(other)
