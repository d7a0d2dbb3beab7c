"""Rules that span several keys, over the merged document.

They hold across files, so they look at raw values and pass over what is wrong in itself: a
mistyped value elsewhere must not hide them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from omlxd.spec.fields import is_loopback
from omlxd.spec.keys import dotted, quoted
from omlxd.spec.model import Server
from omlxd.spec.positions import Path
from omlxd.spec.problems import Finding

Where = Callable[[Path], str]  # "file:line:column" of a path, for messages that name two places


def broken_rules(document: Mapping[str, Any], where: Where) -> list[Finding]:
    """All findings, in the order of the document."""
    return [
        *_exposed(_table(document, "server")),
        *_clashes(_table(document, "models"), where),
        *_tool_servers(_table(document, "mcp")),
        *_unknown_tool_servers(document),
    ]


def _table(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = document.get(name)
    return value if isinstance(value, Mapping) else {}


def _exposed(server: Mapping[str, Any]) -> Iterator[Finding]:
    """Whoever reaches the port may use the models, so a reachable port needs a key."""
    if server.get("api_keys", Server().api_keys):
        return
    listen = server.get("listen", Server().listen)
    addresses = listen if isinstance(listen, list | tuple) else [listen]
    for address in addresses:
        if isinstance(address, str) and _is_reachable(address):
            yield Finding(
                ("server", "listen"),
                f'server.listen "{address}" is open to other machines and server.api_keys is empty',
                'add a key to server.api_keys, or listen on "127.0.0.1"',
            )


def _is_reachable(address: str) -> bool:
    try:
        return not is_loopback(address)
    except ValueError:
        return False  # reported as a value that is wrong in itself


def _clashes(models: Mapping[str, Any], where: Where) -> Iterator[Finding]:
    """A name means one model: no alias twice, none that is a model's own name."""
    taken: dict[str, Path] = {name: ("models", name) for name in models}
    for name, model in models.items():
        aliases = model.get("aliases") if isinstance(model, Mapping) else None
        for index, alias in enumerate(aliases if isinstance(aliases, list) else ()):
            if not isinstance(alias, str):
                continue
            path: Path = ("models", name, "aliases", index)
            first = taken.setdefault(alias, path)
            if first != path:
                yield Finding(path, _clash(alias, name, first, where), "one name, one model")


def _clash(alias: str, name: str, first: Path, where: Where) -> str:
    owner = dotted(first[:2])
    what = f"the name of {owner}" if len(first) == 2 else f"an alias of {owner}"
    return f'alias "{alias}" of {dotted(("models", name))} is already {what} ({where(first)})'


def _tool_servers(mcp: Mapping[str, Any]) -> Iterator[Finding]:
    """A tool server is started, or it is called; not both, and not neither."""
    for name, server in _table(mcp, "servers").items():
        if not isinstance(server, Mapping):
            continue
        path: Path = ("mcp", "servers", name)
        if bool(server.get("command")) == bool(server.get("url")):
            found = "both" if server.get("url") else "neither"
            hint = "command starts a program, url is the address of one that runs"
            yield Finding(path, f"needs either command or url, and has {found}", hint)
            continue
        others = ("headers",) if server.get("command") else ("args", "env")
        for key in others:
            if server.get(key):
                owner = "url" if key == "headers" else "command"
                yield Finding((*path, key), f"belongs to a server with {owner}", "remove it")


def _unknown_tool_servers(document: Mapping[str, Any]) -> Iterator[Finding]:
    """Unless there is an mcp.json, which may have them."""
    mcp = _table(document, "mcp")
    if mcp.get("config"):
        return
    known = _table(mcp, "servers")
    models = _table(document, "models")
    tables: list[tuple[Path, Any]] = [(("defaults",), document.get("defaults"))]
    tables += [(("models", name), model) for name, model in models.items()]
    for base, table in tables:
        names = table.get("mcp") if isinstance(table, Mapping) else None
        for index, name in enumerate(names if isinstance(names, list) else ()):
            if isinstance(name, str) and name not in known:
                listed = ", ".join(known) or "none"
                message = f'there is no tool server "{name}"; there are: {listed}'
                yield Finding((*base, "mcp", index), message, f"add [mcp.servers.{quoted(name)}]")
