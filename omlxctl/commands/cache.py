"""cache stats, ls, verify, gc, clear: blocks of earlier prompts, in memory and on disk."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from omlxctl import cacheview, exits
from omlxctl.client import decode
from omlxctl.exits import CtlError
from omlxctl.groups import GuessingGroup
from omlxctl.options import complete_model, daemon_options
from omlxctl.target import Target, emit, pass_target
from omlxd.control.cache_wire import (
    CacheCleared,
    CacheCollected,
    CacheEntries,
    CacheStats,
    CacheTarget,
    VerifyProgress,
)

F = TypeVar("F", bound=Callable[..., Any])
SLOW_S = 600.0  # for what goes over the whole disk


def _model_option(help_text: str) -> Callable[[F], F]:
    return click.option(
        "--model", metavar="MODEL", default="", shell_complete=complete_model, help=help_text
    )


@click.group(cls=GuessingGroup)
@daemon_options
def cache() -> None:
    """Look at and clean up the prefix cache."""


@cache.command()
@daemon_options
@pass_target
def stats(target: Target) -> None:
    """Show both tiers, each engine's part, and what happened by reason."""
    body = target.client().call("GET", "/v1/cache")
    if target.json:
        emit(body)
    else:
        click.echo("\n".join(cacheview.stats_lines(decode(body, CacheStats))))


@cache.command()
@daemon_options
@pass_target
def ls(target: Target) -> None:
    """List what is on disk, one row for each model as it was when its files were these."""
    body = target.client().call("GET", "/v1/cache/entries", timeout_s=SLOW_S)
    if target.json:
        emit(body)
    else:
        click.echo("\n".join(cacheview.entries_lines(decode(body, CacheEntries))))


@cache.command()
@_model_option("Only entries of MODEL.")
@daemon_options
@pass_target
def verify(target: Target, model: str) -> None:
    """Read every entry on disk and remove those that are not what was written.

    Exit code 1 if there was one.
    """
    last, is_watched = b"", sys.stderr.isatty()
    client = target.client()
    for line in client.lines("/v1/cache/verify", method="POST", body=CacheTarget(model)):
        last = line
        if is_watched:
            progress = cacheview.progress_line(decode(line, VerifyProgress))
            click.echo(f"\r{progress}", err=True, nl=False)
    if is_watched:
        click.echo("", err=True)
    result = decode(last, VerifyProgress)
    if not result.done:
        raise CtlError("omlxd broke off before all entries were read", hint="omlxctl logs says why")
    if target.json:
        emit(last)
    else:
        click.echo("\n".join(cacheview.verified_lines(result)))
    if result.bad:
        click.get_current_context().exit(exits.FAILED)


@cache.command()
@daemon_options
@pass_target
def gc(target: Target) -> None:
    """Count what is on disk, evict what is too much, and remove leftovers, now.

    omlxd does so by itself; this does not wait until it is due.
    """
    body = target.client().call("POST", "/v1/cache/gc", timeout_s=SLOW_S)
    if target.json:
        emit(body)
    else:
        click.echo("\n".join(cacheview.collected_lines(decode(body, CacheCollected))))


@cache.command()
@_model_option("Only what is stored for MODEL.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@daemon_options
@pass_target
def clear(target: Target, model: str, yes: bool) -> None:
    """Forget everything that is stored, in memory and on disk.

    Running requests are not disturbed; the next ones compute their prompts anew.
    """
    client = target.client()
    if not yes:
        what = f"everything that is stored for {model}" if model else "the whole prefix cache"
        click.confirm(f"Clear {what}, in memory and on disk?", abort=True, err=True)
    body = client.call("POST", "/v1/cache/clear", CacheTarget(model), timeout_s=SLOW_S)
    cleared = decode(body, CacheCleared)
    if target.json:
        emit(body)
    else:
        click.echo("\n".join(cacheview.cleared_lines(cleared)))
    if cleared.failed:
        click.get_current_context().exit(exits.FAILED)
