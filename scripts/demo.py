"""`make demo`: serve a chat and an embedding model, ask both, change settings while they run, stop.

Everything happens in .demo, with real processes and sockets; a step that does not do what it says
ends the tour with exit code 1 and the end of the logs.
"""

from __future__ import annotations

import http.client
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from demo_home import EMBEDDER, MODEL, ROOT, free_port, save_spec

HOME = ROOT / ".demo"
BIN = ROOT / ".venv" / "bin"
QUESTION = "What is the capital of France?"
SENTENCES = ["The cat sleeps.", "A kitten is napping.", "Interest rates rose again."]
START_TIMEOUT_S = 120.0


class DemoFailed(Exception):
    """A step did not do what it says."""


def main() -> int:
    if _omlxctl("status", check=False).returncode == 0:
        print(f"demo: a daemon already serves {HOME}; stop it first", file=sys.stderr)
        return 1
    shutil.rmtree(HOME, ignore_errors=True)
    try:
        _tour(free_port())
    except (DemoFailed, subprocess.TimeoutExpired, OSError, http.client.HTTPException) as problem:
        print(f"\ndemo: failed: {problem}", file=sys.stderr)
        _print_logs()
        return 1
    return 0


def _tour(port: int) -> None:
    save_spec(HOME, port=port, settings="pin = true")
    _say(f"start: omlxd --home .demo, with {MODEL} pinned")
    with _daemon() as daemon:
        _wait("the control socket", lambda: _status(check=False) is not None, daemon=daemon)
        started = time.monotonic()
        _omlxctl("wait", MODEL, "--for", "ready", "--timeout", f"{START_TIMEOUT_S:.0f}s")
        print(f"   loaded in {time.monotonic() - started:.1f} s")

        _say(f"ask over HTTP, port {port}: {QUESTION}")
        _ask(port, MODEL)

        _say(f"compare sentences by {EMBEDDER}, through the same port")
        _compare(port)

        before = _show_status()
        _say('save omlx.toml: pin = false, aliases = ["smol"], ttl = "10m"')
        _change_settings(port, before, daemon)

        _say(f'ask by the new name, "smol": {QUESTION}')
        _ask(port, "smol")

        _say("stop: SIGTERM")
        daemon.send_signal(signal.SIGTERM)
        code = daemon.wait(timeout=60)
        if code != 0:
            raise DemoFailed(f"omlxd ended with exit code {code}")
        print("   exit code 0")


def _change_settings(port: int, before: dict[str, Any], daemon: subprocess.Popen[bytes]) -> None:
    saved = time.monotonic()
    settings = 'pin = false\naliases = ["smol"]\nttl = "10m"'
    save_spec(HOME, port=port, settings=settings)
    _wait(
        "the new settings",
        lambda: (_status() or before)["observed_generation"] > before["observed_generation"],
        daemon=daemon,
    )
    print(f"   in force after {time.monotonic() - saved:.1f} s", flush=True)
    after = _show_status()
    old, new = _served(before), _served(after)
    if (after["pid"], new["pid"]) != (before["pid"], old["pid"]):
        raise DemoFailed("a process was replaced, though every change was a live one")
    if (new["pin"], new["aliases"], new["ttl_s"]) != (False, ["smol"], 600):
        raise DemoFailed(f"the status does not show the new settings: {new}")
    print(f"   daemon {after['pid']} and worker {new['pid']} are the processes they were")


@contextmanager
def _daemon() -> Iterator[subprocess.Popen[bytes]]:
    """omlxd in the background; ended on the way out if it still runs."""
    with Path(HOME, "stderr.log").open("wb") as stderr:
        daemon = subprocess.Popen(
            [BIN / "omlxd", "--home", HOME], stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr
        )
    try:
        yield daemon
    finally:
        if daemon.poll() is None:
            daemon.terminate()
            try:
                daemon.wait(timeout=30)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def _ask(port: int, model: str) -> None:
    """Print the streamed answer as it comes; it must name Paris."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": QUESTION}],
        "temperature": 0,
        "max_tokens": 40,
        "stream": True,
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_TIMEOUT_S)
    connection.request(
        "POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"}
    )
    response = connection.getresponse()
    if response.status != 200:
        raise DemoFailed(f"HTTP {response.status}: {response.read().decode(errors='replace')}")
    answer = ""
    print("   ", end="", flush=True)
    for text in _deltas(response):
        print(text, end="", flush=True)
        answer += text
    print()
    connection.close()
    if "Paris" not in answer:
        raise DemoFailed(f"the answer does not name Paris: {answer!r}")


def _compare(port: int) -> None:
    """Print how near the others are to the first; the one that means the same must be nearest."""
    first, *others = SENTENCES
    body = {"model": EMBEDDER, "input": SENTENCES}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_TIMEOUT_S)
    connection.request(
        "POST", "/v1/embeddings", json.dumps(body), {"content-type": "application/json"}
    )
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    if response.status != 200:
        raise DemoFailed(f"HTTP {response.status}: {answer}")
    base, *vectors = (entry["embedding"] for entry in answer["data"])
    near = [sum(a * b for a, b in zip(base, vector, strict=True)) for vector in vectors]
    for text, cosine in zip(others, near, strict=True):
        print(f"   {cosine:.2f}  {first!r} and {text!r}")
    if near != sorted(near, reverse=True):
        raise DemoFailed("the sentence that means the same is not the nearest")


def _deltas(response: http.client.HTTPResponse) -> Iterator[str]:
    """The text of every server-sent event, up to the closing [DONE]."""
    for line in response:
        data = line.decode().strip().removeprefix("data: ")
        if data == "[DONE]":
            return
        if line.startswith(b"data: "):
            event = json.loads(data)
            if "error" in event:
                raise DemoFailed(f"the stream ended with an error: {event['error']}")
            for choice in event["choices"]:
                yield choice["delta"].get("content") or ""
    raise DemoFailed("the stream broke off before [DONE]")


def _omlxctl(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = [str(BIN / "omlxctl"), "--home", str(HOME), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=START_TIMEOUT_S + 20
    )
    if check and done.returncode != 0:
        raise DemoFailed(f"omlxctl {' '.join(arguments)}: {done.stderr.strip()}")
    return done


def _status(*, check: bool = True) -> dict[str, Any] | None:
    done = _omlxctl("status", "--json", check=check)
    if done.returncode != 0:
        return None
    status: dict[str, Any] = json.loads(done.stdout)
    return status


def _show_status() -> dict[str, Any]:
    """Print what a person sees; return what a script sees."""
    _say("omlxctl status")
    for line in _omlxctl("status").stdout.splitlines():
        print(f"   {line}".rstrip())
    status = _status()
    assert status is not None
    return status


def _served(status: dict[str, Any]) -> dict[str, Any]:
    model: dict[str, Any]
    (model,) = (m for m in status["models"] if m["id"] == MODEL)
    return model


def _wait(what: str, is_true: Callable[[], bool], *, daemon: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while not is_true():
        if daemon.poll() is not None:
            raise DemoFailed(f"omlxd ended with exit code {daemon.returncode}")
        if time.monotonic() > deadline:
            raise DemoFailed(f"{what} did not come within 30 s")
        time.sleep(0.05)


def _say(text: str) -> None:
    print(f"\n── {text}", flush=True)


def _print_logs() -> None:
    for log in (HOME / "stderr.log", HOME / "logs" / "server.log"):
        if log.is_file() and log.stat().st_size:
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            print(f"\n{log}:", *lines[-25:], sep="\n", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
