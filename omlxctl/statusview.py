"""`omlxctl status` for people: the daemon in a few lines, then one row a model. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import click

from omlxctl.render import EMPTY, problem_lines, span, table
from omlxctl.text import safe
from omlxd.control.wire import Condition, ConfigStatus, MemoryStatus, ModelStatus, Status
from omlxd.units import format_size

HEADER = (
    "MODEL",
    "KIND",
    "PHASE",
    "PIN",
    "SIZE",
    "CONTEXT",
    "RUN",
    "WAIT",
    "TTL",
    "EXPIRES",
    "PID",
    "REASON",
)
# Conditions that name a trouble; all others name what should be so.
TROUBLES = frozenset({"CrashLoop", "ListenDrift", "MemoryPressure"})
# Of what may be turned off: Unknown says that it is.
OPTIONAL = frozenset({"ColdTier"})
# What the model itself allows; neither good nor bad.
NATURE = frozenset({"Batching", "PrefixReuse"})


def status_lines(status: Status) -> list[str]:
    """The whole report of `omlxctl status`."""
    generation = f"generation {status.generation}"
    if status.observed_generation != status.generation:
        generation += f" ({status.observed_generation} in force)"
    head = f"omlxd {status.version}  pid {status.pid}  up {span(status.uptime_s)}  {generation}"
    lines = [
        head,
        f"listen  {safe(', '.join(status.listen)) or EMPTY}",
        *_config_lines(status.config),
        f"memory  {_memory(status.memory)}",
        *_conditions(status.conditions),
    ]
    return [*lines, "", *model_rows(status.models)]


def model_rows(models: Sequence[ModelStatus]) -> list[str]:
    if not models:
        return ["no models"]
    return table(HEADER, [_row(model) for model in models])


def model_lines(model: ModelStatus) -> list[str]:
    """One model with everything that is known of it."""
    facts = (
        ("kind", model.kind),
        ("phase", model.phase),
        ("reason", _reason(model)),
        ("pinned", "yes" if model.pin else "no"),
        ("aliases", ", ".join(model.aliases)),
        ("path", model.path),
        ("pid", str(model.pid or "")),
        ("memory", _amount(model.footprint_bytes)),
        ("weights", _amount(model.weights_bytes)),
        ("context", str(model.max_context or "")),
        ("running", str(model.running)),
        ("waiting", str(model.waiting)),
        ("ttl", _ttl(model)),
        ("idle", span(model.idle_s)),
        ("expires", span(model.expires_in_s)),
        ("restarts", str(model.restarts)),
    )
    lines = [safe(model.id), *(f"  {name:<9} {safe(value) or EMPTY}" for name, value in facts)]
    rows = [(c.type, c.status, c.reason, c.message) for c in model.conditions]
    return (
        [*lines, "", *table(("CONDITION", "STATUS", "REASON", "MESSAGE"), rows)] if rows else lines
    )


def is_trouble(condition: Condition) -> bool:
    """Whether the condition is not as it should be; Unknown is not, but for what may be off."""
    if condition.status == "Unknown" and condition.type in OPTIONAL:
        return False
    return condition.status != ("False" if condition.type in TROUBLES else "True")


def explained(condition: Condition) -> str:
    """Its code, and its message where it has one."""
    return f"{condition.reason}: {condition.message}" if condition.message else condition.reason


def _config_lines(config: ConfigStatus) -> list[str]:
    path = safe(config.path)
    if config.valid:
        return [f"config  {path}  valid"]
    verdict = click.style("INVALID", "red")
    lines = [f"config  {path}  {verdict}, the last good state stays in force"]
    for problem in config.problems:
        lines += [f"  {line}" for line in problem_lines(problem)]
    return lines


def _memory(memory: MemoryStatus) -> str:
    used = f"{format_size(memory.footprint_bytes)} of {format_size(memory.limit_bytes)}"
    return f"{used}  hot {format_size(memory.hot_bytes)}  cold {format_size(memory.cold_bytes)}"


def _conditions(conditions: Sequence[Condition]) -> list[str]:
    return [
        f"{click.style('!', 'yellow')} {c.type}={c.status}  {safe(explained(c))}"
        for c in conditions
        if is_trouble(c)
    ]


def _row(model: ModelStatus) -> tuple[str, ...]:
    return (
        model.id,
        model.kind,
        model.phase,
        "pin" if model.pin else "",
        _amount(model.footprint_bytes or model.weights_bytes),
        str(model.max_context or ""),
        str(model.running),
        str(model.waiting),
        _ttl(model),
        span(model.expires_in_s),
        str(model.pid or ""),
        _reason(model),
    )


def _amount(num_bytes: int) -> str:
    return format_size(num_bytes) if num_bytes else ""


def _ttl(model: ModelStatus) -> str:
    """A pinned model has none; of the others, no number means it stays."""
    if model.pin:
        return ""
    return "never" if model.ttl_s is None else span(model.ttl_s)


def _reason(model: ModelStatus) -> str:
    """Why it is as it is, in the daemon's words; for a running model, what is amiss.

    A condition speaks by its message, and by its code where it has none.
    """
    if model.reason or model.phase == "absent":
        return model.reason
    amiss = [c for c in model.conditions if is_trouble(c) and not _is_plain(c)]
    return next((c.message or c.reason for c in amiss), "")


def _is_plain(condition: Condition) -> bool:
    """What a model is by its nature, or what its phase says already."""
    return condition.type in NATURE or (condition.type == "Ready" and not condition.message)
