"""/v1/mcp/*: what tool servers there are, their tools, and one call by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

from omlxd.api.body import check_headers, read_object
from omlxd.api.meter import CLIENT_GONE
from omlxd.api.ports import Gateway
from omlxd.api.respond import REQUEST_ID
from omlxd.errors import RequestInvalid
from omlxd.mcp.tools import offered_name
from omlxd.mcp.types import Offered, Result, ServerView

JSON = "application/json"
_MAX_BODY_BYTES = 4 << 20


class ToolRoutes:
    """The guard has asked for a key, and has let no web page through."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def servers(self, request: Request) -> Response:
        """Starts nothing."""
        views = [_server(view) for view in self._gateway.tools.servers()]
        return _answer({"servers": views, "count": len(views)})

    async def tools(self, request: Request) -> Response:
        """Of all servers; those that are not running are started."""
        offer = await self._gateway.tools.offered()
        off = [{"server": name, "reason": error.message} for name, error in offer.off.items()]
        tools = [_tool(offered) for offered in offer.tools]
        return _answer({"tools": tools, "count": len(tools), "off": off})

    async def execute(self, request: Request) -> Response:
        """What a tool itself calls an error is a result; a call that cannot be made is refused."""
        check_headers(request.scope["headers"], limit=_MAX_BODY_BYTES)
        body = await read_object(request.receive, limit=_MAX_BODY_BYTES)
        name, arguments = _name(body), body.get("arguments")
        if not isinstance(arguments, Mapping | None):
            raise RequestInvalid("arguments: send an object.", param="arguments")
        call = self._gateway.tools.call(
            name, dict(arguments or {}), request_id=request.scope[REQUEST_ID]
        )
        result = await _while_there(request.receive, call)
        if result is None:
            return Response(status_code=CLIENT_GONE)
        return _answer(
            {
                "tool_name": name,
                "content": result.text,
                "is_error": result.is_error,
                "error_message": result.text if result.is_error else None,
            }
        )


async def _while_there(receive: Receive, call: Coroutine[Any, Any, Result]) -> Result | None:
    """The result, or None after the client left; then the call is cancelled."""
    running = asyncio.create_task(call, name="call of a tool")
    gone = asyncio.create_task(_gone(receive), name="client of a call")
    try:
        await asyncio.wait((running, gone), return_when=asyncio.FIRST_COMPLETED)
        return running.result() if running.done() else None
    finally:
        for task in (running, gone):
            task.cancel()
        await asyncio.gather(running, gone, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _name(body: Mapping[str, Any]) -> str:
    """Either the name that a tool is offered under, or its server's and its own."""
    name, server, tool = (body.get(key) for key in ("tool_name", "server", "tool"))
    if isinstance(name, str) and name and server is None and tool is None:
        return name
    if name is None and isinstance(server, str) and isinstance(tool, str) and server and tool:
        return offered_name(server, tool)
    raise RequestInvalid(
        "tool_name: send the name of a tool, as GET /v1/mcp/tools lists it; or server and tool.",
        param="tool_name",
    )


def _tool(offered: Offered) -> dict[str, Any]:
    return {
        "name": offered.name,
        "server": offered.server,
        "tool": offered.tool.name,
        "description": offered.tool.description,
        "parameters": offered.tool.schema,
    }


def _server(view: ServerView) -> dict[str, Any]:
    """`tools` is null before the first start."""
    return {
        "name": view.name,
        "transport": "streamable-http" if view.via == "http" else view.via,
        "source": view.source,
        "state": view.state,
        "reason": view.reason or None,
        "retry_in_s": None if view.retry_in_s is None else round(view.retry_in_s, 1),
        "pid": view.pid,
        "starts": view.starts,
        "calls": view.calls,
        "tools": view.tools,
        "tools_count": len(view.tools or ()),
        "allow_all": view.allow_all,
        "refused_tools": view.refused,
        "missing_tools": view.missing,
        "notes": view.notes,
    }


def _answer(value: Mapping[str, Any]) -> Response:
    return Response(msgspec.json.encode(value), media_type=JSON)
