"""omlxd.spec.model and fields: what each kind of key accepts, inherits and refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import ValidationError

from omlxd.spec.fields import is_loopback, split_address
from omlxd.spec.keys import keys
from omlxd.spec.model import File, Spec
from omlxd.units import Size


def nested(path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    """A document with one key."""
    for part in reversed(path):
        value = {part: value}
    return value  # type: ignore[no-any-return]


@pytest.mark.parametrize("key", list(keys()), ids=lambda key: ".".join(map(str, key.path)))
def test_every_default_reads_back_as_itself(key: Any) -> None:
    """The printed default of a key is accepted and gives the state that leaving it out gives."""
    if key.default is None or key.path[:2] == ("mcp", "servers"):
        return
    name = tuple("some" if part == "*" else part for part in key.path)
    written = Spec.model_validate(nested(name, key.default))
    if "*" not in key.path:
        assert written == Spec()
    assert written.effective("some") == Spec().effective("some")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("server.metrics", 1),
        ("server.metrics", "true"),
        ("scheduler.max_queue", True),
        ("scheduler.max_queue", 2.0),
        ("scheduler.max_queue", -1),
        ("scheduler.prefill_step_tokens", 0),
        ("scheduler.prefill_step_tokens", True),
        ("scheduler.max_concurrent_requests", "8"),
        ("server.fallback_model", 3),
        ("server.api_keys", "sk-1"),
        ("server.api_keys", [""]),
        ("server.api_keys", ["env:"]),
        ("server.api_keys", ["env:1A"]),
        ("server.api_keys", ["file: "]),
        ("server.api_keys", ["two words"]),
        ("server.cors_origins", ["localhost:3000"]),
        ("server.cors_origins", ["http://localhost:3000/"]),
        ("server.cors_origins", ["*"]),
        ("server.shutdown_grace", "never"),
        ("server.request_timeout", "0s"),
        ("engine.start_timeout", 0),
        ("logging.level", "loud"),
        ("logging.max_size", "0"),
        ("logging.max_size", "10%"),
        ("memory.max_process_memory", "0%"),
        ("defaults.context_scale_factor", 0),
        ("defaults.context_scale_factor", math.inf),
        ("defaults.max_context", 0),
        ("defaults.chat_template_kwargs", {"x": math.nan}),
        ("defaults.chat_template_kwargs", {"x": [{"y": 1 << 63}]}),
        ("defaults.sampling", {"temperature": math.nan}),
        ("defaults.sampling", {"temperature": -0.1}),
        ("defaults.sampling", {"temperature": True}),
        ("defaults.sampling", {"top_p": 0}),
        ("defaults.sampling", {"seed": 1.5}),
        ("defaults.sampling", {"min_p": 1.1}),
        ("defaults.aliases", ["x"]),
        ("defaults.path", "/x"),
        ("models.x.aliases", [""]),
        ("models.x.aliases", ["a//b"]),
        ("models.x.ttl", "soon"),
        ("models.x.ttl", -1),
        ("models.x.max_memory", 0),
        ("defaults.mcp", "lab"),
        ("mcp.config", 1),
        ("mcp.max_rounds", 0),
        ("mcp.call_timeout", "never"),
        ("mcp.max_output", "0"),
        ("mcp.servers", {"a__b": {"command": "x"}}),
        ("mcp.servers", {"a b": {"command": "x"}}),
        ("mcp.servers", {"lab": {"command": "./x"}}),
        ("mcp.servers", {"lab": {"command": "x", "env": {"A": 1}}}),
        ("mcp.servers", {"lab": {"command": "x", "env": {"A": "a\nb"}}}),
        ("mcp.servers", {"lab": {"url": "http://user:pass@h"}}),
        ("mcp.servers", {"lab": {"url": "ftp://h"}}),
        ("mcp.servers", {"lab": {"command": "x", "tools": "all"}}),
        ("colour", 1),
    ],
)
def test_values_that_make_no_sense_are_refused(path: str, value: Any) -> None:
    """No value is coerced, clipped or ignored."""
    *parents, last = (
        path.split(".") if not path.startswith("models...") else ("models", "../x", "pin")
    )
    with pytest.raises(ValidationError):
        File.model_validate(nested((*parents, last), value))


@pytest.mark.parametrize("name", ["", " a", "a//b", "../a", "/a", "a/.", "a\nb", "a\x00"])
def test_model_names_are_printable_paths(name: str) -> None:
    """A name that could not stand in a URL or would leave the model folder is refused."""
    with pytest.raises(ValidationError):
        File.model_validate({"models": {name: {}}})


@pytest.mark.parametrize(
    ("path", "value", "read"),
    [
        ("server.listen", "[::1]:80", ("[::1]:80",)),
        ("server.listen", ["a.example:1", "0.0.0.0:65535"], ("a.example:1", "0.0.0.0:65535")),
        ("server.request_timeout", "90s", 90.0),
        ("server.cors_origins", ["app://obsidian.md"], ("app://obsidian.md",)),
        ("server.api_keys", ["sk-1", "env:KEY", "file:~/k"], ("sk-1", "env:KEY", "file:~/k")),
        ("memory.max_process_memory", "80%", None),
        ("memory.max_process_memory", "64GB", Size(64 << 30)),
        ("scheduler.prefill_step_tokens", 512, 512),
        ("defaults.ttl", "never", None),
        ("defaults.kind", "llm", "llm"),
        ("defaults.context_scale_factor", 2, 2.0),
        ("defaults.chat_template_kwargs", {"a": [1, {"b": False}]}, {"a": [1, {"b": False}]}),
    ],
)
def test_documented_forms_are_read(path: str, value: Any, read: Any) -> None:
    """Each documented form of a value arrives as the type that the daemon uses."""
    table, name = path.split(".")
    got = getattr(getattr(File.model_validate(nested((table, name), value)), table), name)
    assert got == read if read is not None else str(got) in (value, "None")


@pytest.mark.parametrize(
    "address",
    [
        *("8000", ":8000", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "::1:8000", "[::1]"),
        *("[x]:1", "*:8000", "a b:1", "127.0.0.1:８０", "http://x:1", "-x:1"),
    ],
)
def test_addresses_are_host_and_port(address: str) -> None:
    """An address without a usable host and port is refused."""
    with pytest.raises(ValueError, match=r"address|port|IPv6"):
        split_address(address)


@pytest.mark.parametrize("listen", [[], ["127.0.0.1:1", "127.0.0.1:1"], [8000], 8000])
def test_listen_is_one_address_or_distinct_ones(listen: Any) -> None:
    """No address at all, the same one twice, or something else is refused."""
    with pytest.raises(ValidationError):
        File.model_validate({"server": {"listen": listen}})


def test_loopback_is_decided_by_the_address() -> None:
    """Only localhost and loopback addresses count as this machine; other names do not."""
    assert [
        is_loopback(f"{host}:1") for host in ("127.0.0.1", "127.9.9.9", "[::1]", "LocalHost")
    ] == [True] * 4
    assert not any(
        is_loopback(f"{host}:1") for host in ("0.0.0.0", "[::]", "192.168.1.2", "my.mac")
    )
    assert split_address("[0:0::1]:80") == ("::1", 80)


def test_models_inherit_the_defaults() -> None:
    """A model has what [defaults] says for each key, inside tables too, that it does not set."""
    spec = Spec.model_validate(
        {
            "defaults": {
                "ttl": "5m",
                "sampling": {"temperature": 0.5, "top_p": 0.9},
                "chat_template_kwargs": {"a": 1},
            },
            "models": {
                "one": {"sampling": {"temperature": 0}, "chat_template_kwargs": {"b": 2}},
                "two": {"ttl": "never", "aliases": ["second"]},
            },
        }
    )
    one, two = spec.models["one"], spec.models["two"]
    assert (one.ttl, two.ttl) == (300.0, None)
    assert (one.sampling.temperature, one.sampling.top_p) == (0.0, 0.9)
    assert one.chat_template_kwargs == {"a": 1, "b": 2}
    assert two.sampling.temperature == 0.5
    assert spec.effective("two") is two


def test_undeclared_models_have_the_defaults() -> None:
    """A model without an entry is what an empty entry would make it."""
    table = {"defaults": {"ttl": "5m", "max_memory": "50%"}}
    declared = Spec.model_validate(table | {"models": {"x": {}}})
    assert Spec.model_validate(table).effective("x") == declared.models["x"]


@pytest.mark.parametrize(
    ("document", "loc"),
    [
        ({"server": {"admin_keys": ["k"]}}, ("server", "admin_keys")),
        ({"hub": {"endpoint": "https://m"}}, ("hub", "endpoint")),
        ({"models": {"m": {"kind": "vlm"}}}, ("models", "m", "kind")),
    ],
)
def test_keys_without_a_feature_are_refused(document: Any, loc: tuple[str, ...]) -> None:
    """A key whose feature does not exist yet is refused at its place, not ignored."""
    with pytest.raises(ValidationError) as caught:
        File.model_validate(document)
    (error,) = caught.value.errors()
    assert error["type"] == "not_built"
    assert error["loc"] == loc


def test_keys_without_a_feature_take_their_default() -> None:
    """Writing the default of such a key changes nothing."""
    document = {"hub": {"endpoint": ""}, "server": {"admin_keys": []}}
    assert File.model_validate(document) == File()


def test_a_spec_does_not_change() -> None:
    """What was read is immutable."""
    with pytest.raises(ValidationError):
        Spec().server.metrics = True  # type: ignore[misc]
