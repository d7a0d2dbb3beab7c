"""The first thing every request meets: its id, the access rules, and CORS. Denies by default."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from omlxd.api.access import Caller, check, check_host, check_origin, refuse_pages
from omlxd.api.ports import Gateway
from omlxd.api.respond import REQUEST_ID, RawHeaders, send_error
from omlxd.errors import OmlxError

CALLER = "omlxd.caller"  # key of the scope: who asks, as the access rules see it
Refused = Callable[[Scope, OmlxError], None]


def new_request_id() -> str:
    return f"req_{secrets.token_hex(12)}"


class Guard:
    """Middleware. Only `open_paths` are answered without a key, whatever else is routed.

    `tool_paths` are stricter than all others.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        gateway: Gateway,
        open_paths: Collection[str],
        tool_paths: Collection[str],
        refused: Refused,
    ) -> None:
        self._app = app
        self._gateway = gateway
        self._open_paths = frozenset(open_paths)
        self._tool_paths = frozenset(tool_paths)
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", scope["type"]
        scope = {**scope, REQUEST_ID: new_request_id(), "path": _single_v1(scope["path"])}
        name = scope[REQUEST_ID].encode()
        # OpenAI's clients read the one, Anthropic's the other.
        headers: RawHeaders = [(b"x-request-id", name), (b"request-id", name)]
        scope[CALLER] = caller = self._caller(scope)
        settings = self._gateway.settings
        preflight = scope["method"] == "OPTIONS" and bool(
            caller.all(b"access-control-request-method")
        )
        try:
            if preflight:  # browsers send it without a key
                host = check_host(settings, caller)
                if caller.tool_route:
                    refuse_pages(caller)
                origin = check_origin(settings, caller, host)
            else:
                origin = check(settings, caller)
        except OmlxError as error:
            self._refused(scope, error)
            await send_error(scope, _with(send, headers), error)
            return
        if origin is not None:
            headers += _cors(origin)
        if preflight and origin is not None:
            await _send_preflight(_with(send, headers), caller)
            return
        await self._app(scope, receive, _with(send, headers))

    def _caller(self, scope: Scope) -> Caller:
        client, server = scope.get("client"), scope.get("server")
        return Caller(
            headers=scope["headers"],
            peer=client[0] if client else None,
            local=server[0] if server else None,
            scheme=scope.get("scheme", "http"),
            open_route=scope["path"] in self._open_paths,
            tool_route=scope["path"] in self._tool_paths,
        )


def _single_v1(path: str) -> str:
    """A base URL that ends in /v1 makes clients ask for /v1/v1/…"""
    return path.removeprefix("/v1") if path.startswith("/v1/v1/") else path


def _with(send: Send, headers: RawHeaders) -> Send:
    """Adds headers to the response head."""

    async def sender(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *headers]}
        await send(message)

    return sender


def _cors(origin: str) -> RawHeaders:
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", b"x-request-id, request-id, retry-after"),
        (b"vary", b"origin"),
    ]


async def _send_preflight(send: Send, caller: Caller) -> None:
    asked = ", ".join(caller.all(b"access-control-request-headers"))
    headers = [
        (b"access-control-allow-methods", b"GET, POST"),
        (b"access-control-allow-headers", asked.encode("latin-1")),
        (b"access-control-max-age", b"600"),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
