"""omlxd.spec.schema and keys: what editors and pages are told is what the reader does."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import jsonschema
import pytest

from omlxd.spec.fields import key as make_key
from omlxd.spec.keys import dotted, keys, redacted
from omlxd.spec.parse import Source, read
from omlxd.spec.schema import json_schema

CHECK = jsonschema.Draft202012Validator(json_schema())


def test_the_schema_is_a_schema() -> None:
    """It holds to its own dialect and has no null, which TOML has not."""
    CHECK.check_schema(json_schema())
    assert "null" not in str(json_schema())
    assert "None" not in str(json_schema())


@pytest.mark.parametrize(
    "text",
    [
        "",
        '[server]\nlisten = "127.0.0.1:1"',
        '[server]\nlisten = ["127.0.0.1:1", "[::1]:1"]\nrequest_timeout = "1h30m"',
        '[models."a/b"]\nttl = "never"\nmax_memory = "64GB"\naliases = ["x"]\nkind = "llm"',
        "[models.a]\nttl = 30\nmax_memory = 1024\nsampling.temperature = 0.5",
        '[memory]\nmax_process_memory = "80%"',
        "[scheduler]\nprefill_step_tokens = 512",
        "[models.a.chat_template_kwargs]\nenable_thinking = false",
    ],
)
def test_what_the_reader_takes_the_schema_takes(text: str) -> None:
    """An editor marks nothing that is right."""
    assert read(Source("omlx.toml", text)).problems == ()
    assert list(CHECK.iter_errors(tomllib.loads(text))) == []


@pytest.mark.parametrize(
    "text",
    [
        "colour = 1",
        "[server]\nmetrics = 1",
        "[models.a]\npinned = true",
        '[models.a]\nttl = "soon"',
        '[models.a]\nttl = ""',
        '[models.a]\nkind = "x"',
        '[logging]\nmax_size = "10%"',
        "[models.a.sampling]\ntop_p = 2",
        "[defaults]\naliases = ['x']",
    ],
)
def test_what_the_schema_refuses_the_reader_refuses(text: str) -> None:
    """An editor marks unknown keys, wrong types and words."""
    assert list(CHECK.iter_errors(tomllib.loads(text)))
    assert read(Source("omlx.toml", text)).problems


def test_every_key_is_described() -> None:
    """Each key has one line for people, without the marks of other formats."""
    for key in keys():
        assert key.doc, key.path
        assert not re.search(r"[\n—–]|\.$", key.doc), key.path


def test_every_key_is_in_the_schema_with_its_default() -> None:
    """Descriptions and defaults of the schema are those of the keys."""
    schema = json_schema()
    for key in keys():
        node: Any = schema
        for part in key.path:
            node = node["additionalProperties"] if part == "*" else node["properties"][part]
            if "$ref" in node:
                node = schema["$defs"][node["$ref"].rpartition("/")[2]]
        assert node["description"].startswith(key.doc)
        assert node.get("default") == key.default


def test_names_are_spelled_as_toml_spells_them() -> None:
    """A model's name is in quotes, others only where needed; elements have their index."""
    assert dotted(("models", "a", "ttl")) == 'models."a".ttl'
    assert dotted(("models", 'a"b\x7f')) == 'models."a\\"b\\u007f"'
    assert dotted(("mcp", "servers", "a b", "args", 0)) == 'mcp.servers."a b".args[0]'
    assert tomllib.loads(f"{dotted(('models', 'ä.b', 'x y'))} = 1") == {
        "models": {"ä.b": {"x y": 1}}
    }


def test_only_secret_keys_are_redacted() -> None:
    """Literal keys are hidden one by one or in a list; nothing else is touched."""
    assert redacted("server.api_keys[0]", "sk") == "***"
    assert redacted("server.admin_keys", ("sk", "file:x")) == ["***", "file:x"]
    assert redacted("server.listen", "sk") == "sk"
    for key in ("mcp.servers.lab.env", 'mcp.servers."a\\"b".headers'):
        assert redacted(f"{key}.TOKEN", "sk") == "***"
        assert redacted(key, {"A": "sk", "B": "env:B"}) == {"A": "***", "B": "env:B"}
    assert redacted("mcp.servers.lab.args", ["sk"]) == ["sk"]


def test_a_key_is_built_unless_said_otherwise() -> None:
    """The marks of a key default to harmless ones."""
    extra = make_key(1, "live", "doc").json_schema_extra
    assert (extra["built"], extra["secret"], extra["reload"]) == (True, False, "live")
