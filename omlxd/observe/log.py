"""The daemon's log: JSON lines, `time`, `level`, `type`, then fields.

`get()` works at once: until `configure` has named a file, lines go to stderr. Logging never raises
into the caller, and what is secret is blanked here and nowhere else.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, MutableMapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import structlog
from structlog.processors import ExceptionRenderer
from structlog.typing import FilteringBoundLogger

from omlxd.observe.logfile import LogFile, complain

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}

_SECRET_KEYS = frozenset({"api_key", "api_keys", "admin_keys", "x_api_key", "authorization"})
_HIDDEN = "[redacted]"

_encoder = json.JSONEncoder(default=str, ensure_ascii=False, allow_nan=False)


class _Output:
    """Where finished records go; structlog calls the method of the record's level."""

    def __init__(self) -> None:
        self.level = LEVELS["info"]
        self.file: LogFile | None = None
        self.console = True

    def write(self, record: dict[str, Any]) -> None:
        if self.file is None:
            _to_stderr(_json_line(record))
            return
        lost = self.file.write(_json_line(record).encode("utf-8", "replace"))
        if lost:
            now = _head("warning", "log_lines_lost") | {"lines": lost}
            self.file.write(_json_line(now).encode())
        if self.console:
            _to_stderr(_console_line(record))

    debug = info = warning = error = critical = write


_output = _Output()


# ------------------------------------------------------------------ from event to record


def _drop_below_level(_: Any, level: str, event: MutableMapping[str, Any]) -> Any:
    if LEVELS[level] < _output.level:
        raise structlog.DropEvent
    return event


def _record(_: Any, level: str, event: MutableMapping[str, Any]) -> Any:
    fields = {key: value for key, value in event.items() if key != "event"}
    head = _head(level, event["event"])
    return ((head | _without_secrets(fields) | head,), {})  # first in order, last in say


def _head(level: str, type_: object) -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return {"time": now.replace("+00:00", "Z"), "level": level, "type": type_}


def _without_secrets(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            key: _HIDDEN if _is_secret(key) and inner else _without_secrets(inner)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_without_secrets(inner) for inner in value]
    return value


def _is_secret(key: object) -> bool:
    return str(key).lower().replace("-", "_").rpartition(".")[2] in _SECRET_KEYS


def _json_line(record: dict[str, Any]) -> str:
    try:
        return _encoder.encode(record) + "\n"
    except Exception as error:  # whatever a field's own __str__ raises, or a cycle, or NaN
        plain = {key: record[key] for key in ("time", "level", "type")}
        plain |= {key: _text(value) for key, value in record.items() if key not in plain}
        return json.dumps(plain | {"log_problem": _text(error)}) + "\n"


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception as error:
        return f"<{type(value).__name__} whose text raises {type(error).__name__}>"


def _console_line(record: dict[str, Any]) -> str:
    rest = {key: value for key, value in record.items() if key not in ("time", "level", "type")}
    trace = rest.pop("exception", "")
    words = [record["time"][11:19], f"{record['level']:<7}", _text(record["type"])]
    words += [f"{key}={_text(value)}" for key, value in rest.items()]
    return " ".join(words) + (f"\n{trace}" if trace else "") + "\n"


def _to_stderr(line: str) -> None:
    try:
        sys.stderr.write(line)
        sys.stderr.flush()
    except (OSError, ValueError) as error:  # a closed terminal, a closed stream
        _output.console = False
        complain(f"cannot write the log to stderr: {error}")


_logger = structlog.wrap_logger(
    _output,
    processors=[_drop_below_level, ExceptionRenderer(), _record],
    wrapper_class=structlog.make_filtering_bound_logger(0),
    context_class=dict,
    cache_logger_on_first_use=True,
)


class _FromStdlib(logging.Handler):
    """What libraries log (uvicorn, asyncio), as records of type `log`."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            level = record.levelname.lower()
            message = record.getMessage()
        except Exception:  # a library's own wrong format: logging says it on stderr
            self.handleError(record)
            return
        fields: dict[str, Any] = {"logger": record.name, "message": message}
        if record.exc_info:
            fields["exc_info"] = record.exc_info
        get().log(LEVELS.get(level, LEVELS["info"]), "log", **fields)


_from_stdlib = _FromStdlib()


# ------------------------------------------------------------------ what others use


def get() -> FilteringBoundLogger:
    """The one logger: `get().info("model_load", model=…, duration_s=…)`."""
    return cast(FilteringBoundLogger, _logger)


def configure(path: Path, level: str, *, max_size: int, keep: int, console: bool = False) -> None:
    """Log to `path` from now on; also the way to change any of it in a running daemon.

    `max_size` in bytes, `keep` rotated files beside the current one, `console`: a short form of
    every line on stderr too. What the standard library's loggers get goes there as well.
    """
    if _output.file is not None and _output.file.path == path:
        _output.file.max_size, _output.file.keep = max_size, keep
    else:
        if _output.file is not None:
            _output.file.close()
        _output.file = LogFile(path, max_size=max_size, keep=keep)
    _output.console = console
    if _from_stdlib not in logging.getLogger().handlers:
        logging.getLogger().addHandler(_from_stdlib)
    set_level(level)


def set_level(level: str) -> None:
    """One of LEVELS; in force at once, for every logger that was handed out."""
    _output.level = LEVELS[level]
    # Libraries stay at info: a watcher that logs every file event would log its own log.
    logging.getLogger().setLevel(max(_output.level, LEVELS["info"]))


def reopen() -> None:
    """For SIGUSR1: go on in whatever is at the path now, after someone moved the file away."""
    if _output.file is not None:
        _output.file.reopen()


def close() -> None:
    """Back to stderr, as before `configure`."""
    logging.getLogger().removeHandler(_from_stdlib)
    _output.console = True
    if _output.file is not None:
        _output.file.close()
        _output.file = None
