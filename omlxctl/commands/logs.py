"""logs: the daemon's log, read from its files, so also with the daemon down."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import click

from omlxctl.groups import GuessingGroup
from omlxctl.logfiles import LogReader
from omlxctl.logview import Filter, Stats, add_up, parse, pretty, stats_lines
from omlxctl.options import complete_model, daemon_options, duration
from omlxctl.target import Target, is_terminal

BEFORE_FOLLOWING = 10  # lines, unless --since asks for more

_model = click.option(
    "--model", metavar="MODEL", shell_complete=complete_model, help="Only lines about MODEL."
)
_since = click.option(
    "--since",
    type=duration,
    metavar="DURATION",
    default="never",
    help="Only lines of this last time, such as 10m [default: all].",
)


@click.group(cls=GuessingGroup, invoke_without_command=True)
@click.option("-f", "--follow", is_flag=True, help="Go on with lines as they are written.")
@click.option("--type", "kind", metavar="TYPE", help="Only lines of this type, such as request.")
@_model
@_since
@daemon_options
@click.pass_context
def logs(
    ctx: click.Context, follow: bool, kind: str | None, model: str | None, since: float
) -> None:
    """Show the log.

    On a terminal one readable line each; elsewhere, and with --json, the JSON lines as they are.
    """
    if ctx.invoked_subcommand is not None:
        if follow or kind or model or not math.isinf(since):
            raise click.UsageError(f"options go after {ctx.invoked_subcommand}")
        return
    target = ctx.find_object(Target)
    assert target is not None
    raw = target.json or not is_terminal()
    wanted = Filter(type=kind, model=model, since=_cutoff(since))
    reader = LogReader(target.home_path() / "logs" / "server.log")
    past: Iterator[str] = _shown(reader.past(), wanted, raw=raw)
    if follow and wanted.since is None:
        past = iter(deque(past, maxlen=BEFORE_FOLLOWING))
    for line in past:
        click.echo(line)
    if follow:
        for line in _shown(reader.follow(), wanted, raw=raw):
            click.echo(line)


@logs.command()
@_model
@_since
@daemon_options
@click.pass_obj
def stats(target: Target, model: str | None, since: float) -> None:
    """Add up the request lines by model.

    Hit rate, and p50/p90/p99 of the times.
    """
    wanted = Filter(type="request", model=model, since=_cutoff(since))
    lines = LogReader(target.home_path() / "logs" / "server.log").past()
    records = (record for line in lines if (record := parse(line)) is not None)
    by_model = add_up(record for record in records if wanted.takes(record))
    click.echo(json.dumps(_document(by_model)) if target.json else "\n".join(stats_lines(by_model)))


def _document(by_model: dict[str, Stats]) -> dict[str, object]:
    return {
        "api_version": 1,
        "models": [{"model": model, **stats.summary()} for model, stats in by_model.items()],
    }


def _cutoff(since: float) -> datetime | None:
    return None if math.isinf(since) else datetime.now(UTC) - timedelta(seconds=since)


def _shown(lines: Iterator[str], wanted: Filter, *, raw: bool) -> Iterator[str]:
    """What is no JSON (a crash of the interpreter) passes where nothing is filtered."""
    for line in lines:
        record = parse(line)
        if record is None:
            if wanted == Filter():
                yield line
        elif wanted.takes(record):
            yield line if raw else pretty(record)
