"""omlxd.mcp.tools: names, allow-lists, and results as text of a bounded size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from omlxd.mcp.tools import allow_list, cut, function, offer, result_text, without
from omlxd.mcp.types import Block, Server, Tool


def tools(*names: str) -> tuple[Tool, ...]:
    return tuple(Tool(name=name) for name in names)


def test_only_allowed_tools_are_offered() -> None:
    """With an allow-list, what it does not have is not offered, and what it misses is told."""
    server = Server(name="lab", source="", allowed=("read", "gone"))
    listed = tools("read", "write")
    assert [offered.name for offered in offer(server, listed)] == ["lab__read"]
    assert allow_list(server, listed) == (("write",), ("gone",))


def test_names_are_ones_that_every_client_takes() -> None:
    """Other characters become underscores; of two tools with one name the first is offered."""
    offered = offer(Server(name="lab", source=""), tools("a.b/c", "a_b_c", "d-e"))
    assert [(one.name, one.tool.name) for one in offered] == [
        ("lab__a_b_c", "a.b/c"),
        ("lab__d-e", "d-e"),
    ]


def test_a_tool_without_a_schema_takes_an_empty_object() -> None:
    """Templates and grammars find an object with properties in every tool."""
    (offered,) = offer(Server(name="lab", source=""), tools("x"))
    assert function(offered)["function"]["parameters"] == {"type": "object", "properties": {}}


def test_what_is_no_text_is_told_in_words() -> None:
    """Pictures, sound, files and links leave a line with their type and size."""
    told = result_text(
        [
            Block("text", "one"),
            Block("image", "", "image/png", 2048),
            Block("file", "file:///x", "", 3),
            Block("link", "http://x", "text/html"),
        ],
        1000,
    )
    assert told.split("\n") == [
        "one",
        "[image omitted: image/png, 2,048 bytes; only text is passed on]",
        "[file omitted: file, 3 bytes at file:///x; only text is passed on]",
        "[link to text/html at http://x]",
    ]


@given(st.text(), st.integers(min_value=0, max_value=64))
def test_no_cut_exceeds_its_limit(text: str, limit: int) -> None:
    """Short text passes; of longer text at most the limit is kept, whole characters, and a note."""
    size = len(text.encode())
    got = cut(text, limit)
    if size <= limit:
        assert got == text
        return
    kept, _, note = got.rpartition("\n[cut: ")
    assert text.startswith(kept)
    assert limit - 4 < len(kept.encode()) <= limit
    assert f"{limit:,} of {size:,} bytes" in note


def test_secrets_are_blanked_and_short_words_are_not() -> None:
    """The longest secret goes first, so that no end of it is left."""
    assert without("key abcdefgh abcd no", ["abcd", "abcdefgh", "no"]) == "key *** *** no"
