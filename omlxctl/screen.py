"""Frames that replace one another on a terminal, and follow one another elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import click

from omlxctl.target import is_terminal


def show_frames(frames: Iterator[str]) -> None:
    """Shows every frame as it comes, until there are no more or Ctrl-C."""
    if not is_terminal():
        for frame in frames:
            click.echo(f"{frame}\n")
        return
    from rich.live import Live
    from rich.text import Text

    with Live(screen=True, auto_refresh=False) as live:
        for frame in frames:
            live.update(Text.from_ansi(frame), refresh=True)
