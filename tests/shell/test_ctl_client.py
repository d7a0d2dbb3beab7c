"""The client of omlxctl against sockets that misbehave."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omlxctl.client import Client, Disconnected, check_length, decode, refusal
from omlxctl.exits import CtlError
from omlxd.control.wire import Status
from tests.support.control_socket import short_home

Answer = Callable[[socket.socket], None]
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def path() -> Iterator[Path]:
    with short_home() as home:
        yield home / "run" / "omlxd.sock"


@pytest.fixture
def answering(path: Path) -> Iterator[Callable[[bytes], None]]:
    """Reads one request, answers the given bytes, and closes."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    threads: list[threading.Thread] = []

    def answer(data: bytes) -> None:
        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(data)

        threads.append(threading.Thread(target=serve))
        threads[-1].start()

    yield answer
    for thread in threads:
        thread.join()
    listener.close()


def test_a_daemon_that_does_not_answer_is_exit_5(path: Path) -> None:
    """A socket that takes the call and stays silent is a time-out that names the call."""
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(path))
        deaf.listen()
        with pytest.raises(CtlError, match=r"did not answer GET /v1/status within 0.05 s") as error:
            Client(path, timeout_s=0.05).call("GET", "/v1/status")
    assert error.value.exit_code == 5


@pytest.mark.parametrize("data", [b"", HEAD + b"5\r\nab", b"hello\r\n\r\n"])
def test_an_answer_that_breaks_off_is_said(
    path: Path, answering: Callable[[bytes], None], data: bytes
) -> None:
    """Half an answer, or none, is never taken for a whole one."""
    answering(data)
    with pytest.raises(Disconnected, match="broke off while answering GET /v1/status"):
        Client(path).call("GET", "/v1/status")


def test_a_stream_that_is_cut_ends_its_lines(
    path: Path, answering: Callable[[bytes], None]
) -> None:
    """Lines that came whole are given before the end of the stream is."""
    answering(HEAD + b"2\r\n1\n\r\n2\r\n2\n\r\n")
    lines = Client(path).lines("/v1/events")
    assert [next(lines), next(lines)] == [b"1", b"2"]
    with pytest.raises(Disconnected, match="IncompleteRead"):
        next(lines)


def test_lines_are_whole_however_they_are_cut(
    path: Path, answering: Callable[[bytes], None]
) -> None:
    """Chunks are no lines: half ones are put together, several are told apart."""
    answering(HEAD + b"2\r\nab\r\n5\r\nc\nd\ne\r\n1\r\nf\r\n0\r\n\r\n")
    assert list(Client(path).lines("/v1/events")) == [b"abc", b"d", b"ef"]


def test_a_stream_has_a_deadline(path: Path, answering: Callable[[bytes], None]) -> None:
    """A deadline that has passed is a TimeoutError before anything is asked."""
    with pytest.raises(TimeoutError):
        next(Client(path).lines("/v1/events", deadline=time.monotonic() - 1))


@pytest.mark.parametrize(
    ("status", "exit_code"),
    [(400, 2), (404, 4), (409, 6), (422, 7), (504, 5), (403, 1), (500, 1), (503, 1), (507, 1)],
)
def test_refusals_have_their_exit_codes(status: int, exit_code: int) -> None:
    """The HTTP status decides the exit code, also where the body is not ours."""
    ours = refusal(status, b'{"code":"x","message":"what happened"}')
    other = refusal(status, b"<html>")
    assert (ours.exit_code, ours.message) == (exit_code, "what happened")
    assert (other.exit_code, other.message) == (exit_code, f"omlxd answered {status}: <html>")


def test_an_answer_of_another_shape_is_said() -> None:
    """A shape that is not understood points at the versions."""
    with pytest.raises(CtlError, match="is not understood") as error:
        decode(b'{"version": 5}', Status)
    assert "different versions" in error.value.hint


def test_bytes_count_not_characters() -> None:
    """The limit of a socket path is in bytes of its encoded form."""
    with pytest.raises(CtlError, match="is 121 bytes long"):
        check_length(Path("/" + "ü" * 60))
    check_length(Path("/" + "ü" * 50))
