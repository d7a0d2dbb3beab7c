"""Fetching a picture from a web server: from a checked address, within limits of size and time.

Every hop is checked anew: its host is looked up, all of its addresses must be allowed, and the
connection goes to one of these addresses, so a name that changes its mind changes nothing. No
cookies, no credentials and no proxy are used.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import cached_property
from ipaddress import ip_address

import httptools

from omlxd.api.web_address import Address, BadUrl, Target, is_public, redirected, target_of

MAX_REDIRECTS = 3
TIMEOUT_S = 15.0  # for one picture, all hops together
_MAX_HEAD_BYTES = 32 * 1024
_MAX_ADDRESSES = 4  # that are tried
_READ_BYTES = 64 * 1024
_REDIRECTS = frozenset((301, 302, 303, 307, 308))


class FetchFailed(Exception):
    """Why there is no picture, as a part of a sentence; names the host, not the rest of the URL."""


class Fetcher:
    """`is_allowed` judges addresses; `limit` is in bytes."""

    def __init__(
        self,
        *,
        limit: int,
        is_allowed: Callable[[Address], bool] = is_public,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._limit = limit
        self._is_allowed = is_allowed
        self._timeout_s = timeout_s

    async def fetch(self, url: str) -> bytes:
        """The body behind an http or https URL. Raises FetchFailed."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._follow(url)
        except TimeoutError:
            raise FetchFailed(f"took more than {self._timeout_s:g} s") from None

    async def _follow(self, url: str) -> bytes:
        for _ in range(1 + MAX_REDIRECTS):
            try:
                target = target_of(url)
                answer = await self._ask(target)
                if answer.status not in _REDIRECTS:
                    return answer.picture(target.authority)
                url = redirected(url, answer.header("location"))
            except BadUrl as error:
                raise FetchFailed(f"the URL {error}") from None
        raise FetchFailed(f"was redirected more than {MAX_REDIRECTS} times")

    async def _ask(self, target: Target) -> _Answer:
        reader, writer = await self._connect(target)
        answer = _Answer(self._limit)
        try:
            writer.write(_request(target))
            await writer.drain()
            while not answer.is_enough:
                if not (data := await reader.read(_READ_BYTES)):
                    answer.end()
                    break
                answer.feed(data)
        except (OSError, httptools.HttpParserError) as error:
            raise FetchFailed(f"{target.authority} broke off: {_reason(error)}") from error
        finally:
            writer.transport.abort()  # nothing is to be said, and the server may never answer
        return answer

    async def _connect(self, target: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        secure = target.scheme == "https"
        context = await asyncio.to_thread(lambda: self._tls) if secure else None
        failure: OSError | None = None
        for address in (await self._addresses(target))[:_MAX_ADDRESSES]:
            try:
                return await asyncio.open_connection(
                    str(address),
                    target.port,
                    ssl=context,
                    server_hostname=target.host if secure else None,
                )
            except OSError as error:  # the next one may be reachable
                failure = error
        raise FetchFailed(f"{target.authority} cannot be reached: {_reason(failure)}") from failure

    async def _addresses(self, target: Target) -> list[Address]:
        """All that the host has; refused if one of them is not allowed."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise FetchFailed(f"{target.host} cannot be found: {_reason(error)}") from error
        addresses = [ip_address(entry[4][0]) for entry in found]
        if not all(map(self._is_allowed, addresses)):
            raise FetchFailed(f"{target.host} leads to an address that is not public")
        return addresses

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()


class _Answer:
    """One answer while it is read: httptools calls the `on_` methods."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[str, str]] = []
        self._head_bytes = 0
        self._body = bytearray()
        self._has_head = False
        self._is_complete = False
        self.status = 0

    @property
    def is_enough(self) -> bool:
        """What comes after this is not wanted."""
        if self._is_complete or not self._has_head:
            return self._is_complete
        return self._problem() != "" or len(self._body) > self._limit

    def header(self, name: str) -> str:
        """Its first value; "" without one."""
        return next((value for key, value in self._headers if key == name), "")

    def feed(self, data: bytes) -> None:
        """Raises httptools.HttpParserError."""
        if not self._has_head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            if not self._is_complete:  # more than was announced is nobody's
                raise
        if not self._has_head and self._head_bytes > _MAX_HEAD_BYTES:
            raise httptools.HttpParserError(f"the head has more than {_MAX_HEAD_BYTES} bytes")

    def end(self) -> None:
        """The server closed the connection. Raises httptools.HttpParserError if it was too soon."""
        is_open_ended = not (self.header("content-length") or self.header("transfer-encoding"))
        if not (self._has_head and is_open_ended):
            raise httptools.HttpParserError("the connection ended before the answer did")
        self._is_complete = True

    def picture(self, authority: str) -> bytes:
        """The body. Raises FetchFailed if the answer is anything but a picture within the limit."""
        if problem := self._problem():
            raise FetchFailed(f"{authority} {problem}")
        if len(self._body) > self._limit:
            raise FetchFailed(f"{authority} sent {self._more()}")
        return bytes(self._body)

    def _problem(self) -> str:
        """Why the body is not wanted, told from the head; "" if it is."""
        if self.status != 200:
            return f"answered with status {self.status}"
        kind = self.header("content-type").partition(";")[0].strip().lower()
        if not kind.startswith("image/"):
            return f"sent {kind[:80] or 'no content type'!r}, not a picture"
        if (encoding := self.header("content-encoding").lower()) not in ("", "identity"):
            return f"sent it encoded as {encoding[:80]!r}, though only identity was asked for"
        length = self.header("content-length")
        if length.isdecimal() and int(length) > self._limit:
            return f"announced {self._more()}"
        return ""

    def _more(self) -> str:
        return f"more than {self._limit} bytes, which is the most a picture may have"

    # -------------------------------------------------------------- called by the parser

    def on_message_begin(self) -> None:
        """Also after an interim answer, which counts for nothing."""
        if not self._is_complete:
            self._headers, self._has_head = [], False

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_complete:
            self._headers.append((name.decode("latin-1").lower(), value.decode("latin-1").strip()))

    def on_headers_complete(self) -> None:
        if not self._is_complete and (status := self._parser.get_status_code()) >= 200:
            self.status, self._has_head = status, True

    def on_body(self, body: bytes) -> None:
        if self._has_head and not self._is_complete and len(self._body) <= self._limit:
            self._body += body

    def on_message_complete(self) -> None:
        self._is_complete = self._has_head


def _request(target: Target) -> bytes:
    lines = (
        f"GET {target.path} HTTP/1.1",
        f"Host: {target.authority}",
        "Accept: image/*",
        "Accept-Encoding: identity",
        "User-Agent: omlxd",
        "Connection: close",
    )
    return "\r\n".join((*lines, "", "")).encode("ascii")


def _reason(error: Exception | None) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
