"""Fetching a picture: from checked addresses only, at every hop, within limits of size and time."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from omlxd.api.web_fetch import Fetcher, FetchFailed
from tests.support.tls import certificate
from tests.support.web import Pieces, Web, here_too, moved, says, web

BODY = b"\x89PNG" + bytes(range(256))
LIMIT = 1000


@pytest.fixture
async def server() -> AsyncIterator[Web]:
    async with web() as it:
        yield it


def fetcher(**more: Any) -> Fetcher:
    return Fetcher(limit=LIMIT, is_allowed=here_too, **more)


async def failure(url: str, by: Fetcher | None = None) -> str:
    with pytest.raises(FetchFailed) as caught:
        await (by or fetcher()).fetch(url)
    return str(caught.value)


def each_byte(pieces: Pieces) -> Pieces:
    return [bytes([byte]) for byte in b"".join(pieces)]


CHUNKED = b"4\r\n" + BODY[:4] + b"\r\n100\r\n" + BODY[4:] + b"\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        says(BODY),
        says(BODY, kind="IMAGE/PNG; x=y"),
        says(CHUNKED, "Transfer-Encoding: chunked"),
        [says(b"", "Content-Length: 260")[0].replace(b"Content-Length: 260\r\n", b""), BODY],
        [b"HTTP/1.1 103 Early Hints\r\nContent-Type: text/html\r\n\r\n", *says(BODY)],
        each_byte(says(BODY)),
        each_byte(says(CHUNKED, "Transfer-Encoding: chunked")),
        says(BODY + b"HTTP/1.1 200 OK\r\n\r\nmore", f"Content-Length: {len(BODY)}"),
        says(BODY + b"more", f"Content-Length: {len(BODY)}", "Connection: close"),
        says(BODY, "Content-Encoding: identity"),
    ],
)
async def test_a_picture_is_its_body(server: Web, answer: Pieces) -> None:
    """However it is framed and cut into pieces; what follows it is nobody's."""
    server.answers["/x"] = answer
    assert await fetcher().fetch(server.url()) == BODY


async def test_what_is_asked(server: Web) -> None:
    """The path with its query, the host as it was written, nothing compressed, no credentials."""
    server.answers["/a%20b?c=d"] = says(BODY)
    await fetcher().fetch(server.url("/a%20b?c=d#e"))
    assert server.requests == [
        f"GET /a%20b?c=d HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAccept: image/*\r\n"
        "Accept-Encoding: identity\r\nUser-Agent: omlxd\r\nConnection: close\r\n\r\n"
    ]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (says(b"gone", status="404 Not Found"), "answered with status 404"),
        (says(b"", status="204 No Content", kind=""), "answered with status 204"),
        (says(BODY, status="206 Partial Content"), "answered with status 206"),
        (says(b"<html>", kind="text/html"), "sent 'text/html', not a picture"),
        (says(b"%PDF-", kind="application/pdf"), "sent 'application/pdf', not a picture"),
        (says(BODY, kind=""), "sent 'no content type', not a picture"),
        (says(BODY, "Content-Encoding: gzip"), "encoded as 'gzip'"),
        (says(BODY, "Content-Length: 9999"), "announced more than 1000 bytes"),
        (says(BODY, "Content-Length: 500"), "ended before the answer did"),
        (says(BODY[:9], "Transfer-Encoding: chunked"), "broke off"),
        (says(CHUNKED[:40], "Transfer-Encoding: chunked"), "ended before the answer did"),
        (says(b"3e9\r\n" + bytes(1001), "Transfer-Encoding: chunked"), "sent more than 1000 bytes"),
        ([b"HTTP/1.1 200 OK\r\nContent-Type: image/x\r\n\r\n", bytes(1001)], "sent more than 1000"),
        ([b"HTTP/1.1 200 OK\r\n"], "ended before the answer did"),
        ([], "ended before the answer did"),
        ([b"SSH-2.0-OpenSSH_9.6\r\n"], "broke off"),
        ([b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"], "broke off"),
        ([b"HTTP/1.1 200 OK\r\nX: ", b"x" * 40_000], "the head has more than"),
        ([b"HTTP/1.1 100 Continue\r\n\r\n"] * 2000, "the head has more than"),
    ],
)
async def test_what_is_no_picture(server: Web, answer: Pieces, problem: str) -> None:
    """Each says what came instead."""
    server.answers["/x"] = answer
    assert problem in await failure(server.url())


@pytest.mark.parametrize(
    "answer",
    [
        says(b"", "Content-Length: 100"),
        says(b"", "Content-Length: 100")[:1] + [b"x"] * 50,
        [b"HTTP/1.1 200 OK\r\n"],
        [],
    ],
)
async def test_a_server_that_does_not_go_on_is_given_up(server: Web, answer: Pieces) -> None:
    """Wherever it stops, and the connection is closed."""
    server.answers["/x"] = answer
    server.holds.add("/x")
    assert await failure(server.url(), fetcher(timeout_s=0.2)) == "took more than 0.2 s"
    await server.left.wait()


async def test_what_is_not_wanted_is_not_waited_for(server: Web) -> None:
    """A refusal that the head gives comes at once, however much is to follow."""
    server.answers["/x"] = says(b"", "Content-Length: 900", kind="text/html")
    server.answers["/y"] = moved("/z")[:1]
    server.answers["/z"] = says(b"", "Content-Length: 100000")
    server.holds |= {"/x", "/y", "/z"}
    assert "text/html" in await failure(server.url())
    assert "announced more" in await failure(server.url("/y"))


@pytest.mark.parametrize(
    "status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"]
)
async def test_redirects_are_followed(server: Web, status: str) -> None:
    """Relative and absolute ones, three at most."""
    server.answers |= {
        "/a": moved("b", status),
        "/b": moved(server.url("/c"), status),
        "/c": moved(f"//127.0.0.1:{server.port}/d", status),
        "/d": says(BODY),
        "/0": moved("/a", status),
    }
    assert await fetcher().fetch(server.url("/a")) == BODY
    assert server.paths == ["/a", "/b", "/c", "/d"]
    assert await failure(server.url("/0")) == "was redirected more than 3 times"


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("http://127.0.0.2:{port}/y", "127.0.0.2 leads to an address that is not public"),
        ("http://[::1]:{port}/y", "::1 leads to an address that is not public"),
        ("http://169.254.169.254/latest/meta-data", "169.254.169.254 leads to an address"),
        ("http://2130706434:{port}/y", "leads to an address that is not public"),
        ("http://[::ffff:7f00:2]:{port}/y", "leads to an address that is not public"),
        ("http://0:{port}/y", "leads to an address that is not public"),
        ("file:///etc/passwd", "the URL has the scheme 'file'"),
        ("data:image/png;base64,AAAA", "the URL has the scheme 'data'"),
        ("http://user@127.0.0.1:{port}/y", "a user or a password"),
        ("http://127.0.0.1:{port}/y z", "blanks"),
        ("http://[", "cannot be read"),
    ],
)
async def test_every_hop_is_checked(server: Web, location: str, problem: str) -> None:
    """A server cannot send us where a client could not."""
    server.answers["/x"] = moved(location.format(port=server.port))
    server.answers["/y"] = says(BODY)
    assert problem in await failure(server.url())
    assert server.paths == ["/x"]


async def test_this_machine_is_closed_without_being_asked(server: Web) -> None:
    """As it is set up for use, nothing of this machine can be reached."""
    server.answers["/x"] = says(BODY)
    told = await failure(server.url(), Fetcher(limit=LIMIT))
    assert told == "127.0.0.1 leads to an address that is not public"
    assert "not public" in await failure(server.url(host="localhost"), Fetcher(limit=LIMIT))
    assert server.requests == []


class Names:
    """Stands in for the loop's own look-up: what a name leads to, one answer after the other."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = [*answers]
        self.asked: list[str] = []

    async def getaddrinfo(self, host: str, port: int, **_: Any) -> list[Any]:
        if host.replace(".", "").isdigit():  # the connection's own, of an address
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]
        self.asked.append(host)
        return [(0, 0, 0, "", (address, port)) for address in self.answers.pop(0)]


def looked_up(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> Names:
    names = Names(*answers)
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", names.getaddrinfo)
    return names


async def test_a_name_is_looked_up_once(server: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection goes to the very address that was checked, under the name."""
    server.answers["/x"] = says(BODY)
    names = looked_up(monkeypatch, ["127.0.0.1"], ["127.0.0.2"])
    assert await fetcher().fetch(server.url(host="pictures.test")) == BODY
    assert names.asked == ["pictures.test"]
    assert f"Host: pictures.test:{server.port}\r\n" in server.requests[0]


async def test_a_name_that_changes_its_mind_is_refused_at_the_next_hop(
    server: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each hop asks anew, and counts for itself only."""
    server.answers["/x"] = moved(server.url("/y", host="pictures.test"))
    looked_up(monkeypatch, ["127.0.0.1"], ["127.0.0.2"])
    told = await failure(server.url(host="pictures.test"))
    assert told == "pictures.test leads to an address that is not public"
    assert server.paths == ["/x"]


async def test_one_closed_address_closes_the_name(
    server: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that leads to a public and to another address is not tried at all."""
    looked_up(monkeypatch, ["127.0.0.1", "10.0.0.1"])
    assert "not public" in await failure(server.url(host="pictures.test"))
    assert server.requests == []


async def test_a_server_has_to_prove_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a certificate of the name that was asked for, though an address is connected to."""
    trusted, context = certificate(tmp_path, "pictures.test")
    async with web(context) as server:
        server.answers["/x"] = says(BODY)
        looked_up(monkeypatch, *[["127.0.0.1"]] * 3)
        url = server.url(host="pictures.test").replace("http:", "https:")
        assert "certificate verify failed" in await failure(url)
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        assert await fetcher().fetch(url) == BODY
        assert "Hostname mismatch" in await failure(url.replace("pictures", "others"))
    assert server.paths == ["/x"]


async def test_what_cannot_be_reached() -> None:
    """Names that do not exist and ports that nobody listens on; the URL's path is not told."""
    assert "nowhere.invalid cannot be found" in await failure("http://nowhere.invalid/secret")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    told = await failure(f"http://127.0.0.1:{port}/secret")
    assert told.startswith(f"127.0.0.1:{port} cannot be reached: ")
    assert "secret" not in told
