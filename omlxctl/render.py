"""What people read: tables, times, problems and changes as text. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from omlxctl.text import safe, width
from omlxd.units import format_duration

if TYPE_CHECKING:
    from omlxd.control.wire import Event, PlanResult, RequestStatus
    from omlxd.spec.report import Change, OriginValue, Problem

EMPTY = "-"
TAB = "\t"
_HOUR, _DAY = 3600, 86400
# A colour only repeats what the word already says.
_COLORS = {
    "ready": "green",
    "backoff": "yellow",
    "failed": "red",
    "Warning": "yellow",
    "drain": "yellow",
    "rebind": "yellow",
}


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Capitals header, no borders, `-` for empty, two spaces between columns."""
    cells = [[safe(cell) or EMPTY for cell in row] for row in rows]
    widths = [max(map(width, column)) for column in zip(header, *cells, strict=True)]
    return [_line(header, widths), *(_line(row, widths) for row in cells)]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell + " " * (w - width(cell)) for cell, w in zip(cells, widths, strict=True)]
    padded[-1] = cells[-1]
    return "  ".join(
        click.style(c, _COLORS[c.strip()]) if c.strip() in _COLORS else c for c in padded
    )


def span(seconds: float | None) -> str:
    """A time for people, rounded down to its two largest units: "12s", "1h2m", "3d4h"."""
    if seconds is None:
        return ""
    whole = max(0, int(seconds))
    if whole >= _DAY:
        days, rest = divmod(whole, _DAY)
        return f"{days}d{rest // _HOUR}h"
    return format_duration(whole - whole % 60 if whole >= _HOUR else whole)


def problem_lines(problem: Problem, texts: Mapping[str, str] | None = None) -> list[str]:
    """`file:line:column: message`; the line itself with a caret where its text is at hand."""
    lines = [safe(_placed(problem))]
    source = (texts or {}).get(problem.file, "").split("\n")
    if 0 < problem.line <= len(source) and problem.column > 0:
        text = source[problem.line - 1].rstrip("\r")
        if text.strip():
            before = safe(text[: problem.column - 1], keep=TAB)
            lines.append(f"    {safe(text, keep=TAB)}")
            lines.append(f"    {_blank(before)}^")
    if problem.hint:
        lines.append(f"    {safe(problem.hint)}")
    return lines


def _placed(problem: Problem) -> str:
    place = problem.file or problem.key
    if problem.line:
        place = f"{problem.file}:{problem.line}:{problem.column}"
    return f"{place}: {problem.message}" if place else problem.message


def _blank(text: str) -> str:
    """Blanks that are as wide as `text`; a tab stays one."""
    return "\t".join(" " * width(part) for part in text.split("\t"))


def value_text(value: Any) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def plan_lines(plan: PlanResult) -> list[str]:
    """What a file would change, per model, and what follows from it."""
    if not plan.changes:
        return ["no changes"]

    def order(change: Change) -> tuple[str, str, str]:
        return (change.model, change.reload, change.key)

    rows = [
        (c.model, c.reload, c.key, value_text(c.old), value_text(c.new))
        for c in sorted(plan.changes, key=order)
    ]
    return table(("MODEL", "RELOAD", "KEY", "OLD", "NEW"), rows) + [
        safe(c) for c in plan.consequences
    ]


def request_rows(requests: Sequence[RequestStatus]) -> list[str]:
    header = ("REQUEST", "MODEL", "API", "STATUS", "PROMPT", "COMPUTED", "OUTPUT", "AGE")
    rows = [
        (
            r.request_id,
            r.model,
            r.api,
            r.status,
            str(r.prompt_tokens),
            str(r.computed_tokens),
            str(r.output_tokens),
            span(r.age_s),
        )
        for r in requests
    ]
    return table(header, rows)


def event_line(event: Event) -> str:
    """One line an event; columns that line up without knowing the others."""
    kind = event.type.ljust(7)
    kind = click.style(kind, _COLORS[event.type]) if event.type in _COLORS else kind
    what = safe(f"{event.reason:<20}  {event.model or EMPTY}  {event.message}")
    return f"{event.time}  {kind}  {what}"


def config_lines(values: Sequence[OriginValue], *, origin: bool) -> list[str]:
    """Every value in force; with `origin`, where it was written."""
    if not origin:
        return [safe(f"{v.key} = {value_text(v.value) or EMPTY}") for v in values]
    rows = [
        (v.key, value_text(v.value), f"{v.file}:{v.line}" if v.file else "default") for v in values
    ]
    return table(("KEY", "VALUE", "ORIGIN"), rows)
