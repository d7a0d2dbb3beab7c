"""chat: a question or a talk, over the same HTTP port that other clients use."""

from __future__ import annotations

import http.client
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

import click

from omlxctl import exits
from omlxctl.chatstream import address, body, deltas, error_message
from omlxctl.exits import CtlError
from omlxctl.options import daemon_options, model_argument
from omlxctl.target import Target, pass_target, read_stdin
from omlxd.control.wire import Status

Message = dict[str, str]


@click.command()
@model_argument()
@click.argument("text", required=False)
@click.option("--system", metavar="TEXT", help="System prompt.")
@click.option("--max-tokens", type=click.IntRange(min=1), metavar="N", help="Longest reply.")
@click.option("--temperature", type=click.FloatRange(min=0), metavar="T", help="0 is greedy.")
@daemon_options
@pass_target
def chat(
    target: Target,
    model: str,
    text: str | None,
    system: str | None,
    max_tokens: int | None,
    temperature: float | None,
) -> None:
    """Ask MODEL, print the reply as it comes.

    Without TEXT the question is read from standard input; on a terminal a talk begins, ended by
    Ctrl-D. A key is taken from OMLX_API_KEY.
    """
    host, port = address(target.client().get("/v1/status", Status).listen)
    talk = _Talk(host, port, model, max_tokens, temperature, json=target.json)
    if system:
        talk.messages.append({"role": "system", "content": system})
    if text is not None:
        talk.ask(text)
    elif sys.stdin.isatty():
        _hold(talk)
    else:
        talk.ask(read_stdin())


@dataclass(slots=True)
class _Talk:
    host: str
    port: int
    model: str
    max_tokens: int | None
    temperature: float | None
    json: bool
    messages: list[Message] = field(default_factory=list)

    def ask(self, text: str) -> None:
        """One turn; both sides of it are kept for the next."""
        self.messages.append({"role": "user", "content": text})
        reply = "".join(self._show(self._lines()))
        self.messages.append({"role": "assistant", "content": reply})

    def _show(self, lines: Iterator[bytes]) -> Iterator[str]:
        """Thoughts go to a terminal's stderr only, so a pipe holds the answer alone."""
        thinks_aloud = sys.stderr.isatty() and not self.json
        for delta in deltas(self._echoed(lines) if self.json else lines):
            if thinks_aloud and delta.reasoning:
                click.secho(delta.reasoning, dim=True, nl=False, err=True)
            if not self.json:
                click.echo(delta.text, nl=False)
            yield delta.text
        if not self.json:
            click.echo()

    @staticmethod
    def _echoed(lines: Iterator[bytes]) -> Iterator[bytes]:
        """With --json: the chunks of the reply, one a line."""
        for line in lines:
            if line.startswith(b"data: {"):
                click.echo(line.removeprefix(b"data: ").rstrip())
            yield line

    def _lines(self) -> Iterator[bytes]:
        wanted = body(
            self.model, self.messages, max_tokens=self.max_tokens, temperature=self.temperature
        )
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get("OMLX_API_KEY"):
            headers["Authorization"] = f"Bearer {key}"
        connection = http.client.HTTPConnection(self.host, self.port)
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(wanted), headers)
            response = connection.getresponse()
            if response.status != 200:
                raise CtlError(
                    error_message(response.read()),
                    exit_code=exits.BY_STATUS.get(response.status, exits.FAILED),
                )
            while line := response.readline():
                yield line
        except (OSError, http.client.HTTPException) as error:
            raise CtlError(f"no reply from {self.host}:{self.port}: {error}") from error
        finally:
            connection.close()


def _hold(talk: _Talk) -> None:
    """A question that failed is dropped, so the talk can go on without it."""
    for line in _prompted():
        kept = len(talk.messages)
        try:
            talk.ask(line)
        except CtlError as error:
            error.show()
            del talk.messages[kept:]


def _prompted() -> Iterator[str]:
    """Lines typed at a prompt, until Ctrl-D."""
    import readline  # noqa: F401 (gives input() its line editing)

    while True:
        try:
            line = input("> ")
        except EOFError:
            click.echo()
            return
        if line.strip():
            yield line
