"""omlxd.mcp.config: which tool servers the spec and an mcp.json ask for, and why some are off."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlxd.mcp.config import desired, read_file
from omlxd.mcp.types import Limits, Server
from omlxd.spec.model import Mcp

VARIABLES = {"HOME": "/h", "TOKEN": "t0ken", "EMPTY": ""}


def servers(entries: Any) -> dict[str, Server]:
    found = read_file(json.dumps({"mcpServers": entries}), "mcp.json", VARIABLES.get)
    assert found.problem == ""
    return dict(found.servers)


def one(entry: Any, name: str = "lab") -> Server:
    return servers({name: entry})[name]


def test_the_standard_form_is_read() -> None:
    """A program with arguments and variables, and an address with headers."""
    found = servers(
        {
            "lab": {"command": "npx", "args": ["-y", "lab"], "env": {"A": "b"}, "tools": ["x"]},
            "web": {"type": "http", "url": "https://h/mcp", "headers": {"Authorization": "k"}},
        }
    )
    assert found["lab"] == Server(
        name="lab",
        source="mcp.json",
        command="npx",
        args=("-y", "lab"),
        env={"A": "b"},
        allowed=("x",),
    )
    assert (found["web"].via, found["web"].url) == ("http", "https://h/mcp")
    assert found["web"].headers == {"Authorization": "k"}


def test_variables_stand_only_where_they_may() -> None:
    """${NAME} counts in args, env, url and headers; a command or a tool's name is what it says."""
    found = one(
        {
            "command": "${TOKEN}",
            "args": ["${HOME}/x", "${NOPE:-d}${EMPTY:-e}"],
            "env": {"K": "a ${TOKEN}"},
            "tools": ["${TOKEN}"],
        }
    )
    assert found.command == "${TOKEN}"
    assert found.args == ("/h/x", "de")
    assert found.env == {"K": "a t0ken"}
    assert found.allowed == ("${TOKEN}",)


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({}, "either command or url, and has neither"),
        ({"command": "x", "url": "http://h"}, "has both"),
        ({"command": "x", "type": "sse"}, "type 'sse' is not served"),
        ({"command": "x", "type": "http"}, "type 'http' needs url"),
        ({"command": "./x"}, 'begins with "/"'),
        ({"command": "x", "args": "y"}, "args"),
        ({"command": "x", "env": {"A": 1}}, "env"),
        ({"command": "x", "args": ["${NOPE}"]}, "no NOPE"),
        ({"command": "x", "args": ["${input:key}"]}, "is no variable"),
        ({"url": "http://user:secret@h/"}, "secrets belong in headers"),
        ({"url": "file:///etc/passwd"}, "an address is"),
        ({"command": "x", "disabled": True}, "disabled"),
        ("x", "not an object"),
    ],
)
def test_an_entry_that_cannot_be_used_is_off_alone(entry: Any, why: str) -> None:
    """Its reason says why, without a value that may be secret, and the others are there."""
    found = servers({"bad": entry, "good": {"command": "x"}})
    assert why in found["bad"].off
    assert "secret@" not in found["bad"].off
    assert found["good"].off == ""


@pytest.mark.parametrize("name", ["two words", "a__b", "_a", "", "ü"])
def test_a_name_that_tools_cannot_carry_is_off(name: str) -> None:
    """The name stands before the two underscores of a tool's name."""
    assert "name of a tool server" in one({"command": "x"}, name).off


def test_keys_without_a_meaning_are_told() -> None:
    """Other programs' keys are named in a note, and nothing else comes of them."""
    found = one({"command": "x", "autoApprove": ["all"], "tools": ["*"]})
    assert found.notes == ('"autoApprove" has no meaning here',)
    assert (found.allowed, found.off) == (None, "")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is not valid JSON"),
        ("[]", "mcpServers"),
        ('{"servers": {}}', "mcpServers"),
        ("[" * 5000, "is not valid JSON"),
    ],
)
def test_a_file_without_servers_says_so(text: str, problem: str) -> None:
    """What is no mcp.json gives a problem and no servers."""
    found = read_file(text, "mcp.json", VARIABLES.get)
    assert problem in found.problem
    assert found.servers == {}


@given(
    st.recursive(
        st.none() | st.booleans() | st.text() | st.integers(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["command", "args", "env", "url", "headers", "type", "tools", "x"]),
                inner,
                max_size=4,
            )
        ),
    )
)
def test_no_entry_raises(entry: Any) -> None:
    """Whatever stands in the file, each entry is a server, usable or off with a reason."""
    found = one(entry)
    assert found.off or bool(found.command) != bool(found.url)


def test_the_spec_counts_before_the_file() -> None:
    """A server of omlx.toml replaces the file's of the same name; the others stay."""
    mcp = Mcp.model_validate({"servers": {"lab": {"command": "own", "tools": []}}})
    from_file = servers({"lab": {"command": "x"}, "other": {"command": "y"}})
    found = desired(mcp, from_file, lambda text: (text, ""), file="omlx.toml").servers
    assert {name: server.command for name, server in found.items()} == {"lab": "own", "other": "y"}
    assert found["lab"].allowed == ()
    assert not found["lab"].allows("anything")


def test_references_are_resolved_or_turn_the_server_off() -> None:
    """env: and file: stand for values; one that stands for nothing names itself, not the spec."""
    mcp = Mcp.model_validate(
        {
            "servers": {
                "lab": {"command": "x", "env": {"A": "env:A"}},
                "web": {"url": "http://h", "headers": {"K": "env:NOPE"}},
            }
        }
    )
    values = {"env:A": ("va", ""), "env:NOPE": ("", "omlxd's environment has no NOPE")}
    found = desired(mcp, {}, values.__getitem__, file="omlx.toml").servers
    assert (found["lab"].env, found["lab"].off) == ({"A": "va"}, "")
    assert found["web"].off == "K: omlxd's environment has no NOPE"


def test_limits_are_those_of_the_spec() -> None:
    """Sizes are bytes, times are seconds, never is no limit; the defaults are the package's."""
    assert desired(Mcp(), {}, lambda text: (text, ""), file="").limits == Limits()
    mcp = Mcp.model_validate({"max_output": "1KB", "call_timeout": "5s", "ttl": "never"})
    found = desired(mcp, {}, lambda text: (text, ""), file="").limits
    assert (found.max_output_bytes, found.call_timeout_s, found.ttl_s) == (1024, 5.0, None)
