"""Reading configuration files, and replacing omlx.toml."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from omlxctl import exits
from omlxctl.exits import CtlError


def replace(path: Path, text: str) -> None:
    """Puts `text` at `path` at once or not at all; what was there stays beside it as .bak.

    A symbolic link keeps pointing where it did: the file behind it is replaced.
    """
    path = path.resolve()
    try:
        if path.exists():
            if path.read_text(encoding="utf-8", errors="surrogateescape") == text:
                return
            backup = path.with_name(f"{path.name}.bak")
            write(backup, path.read_bytes(), mode=_mode(path))
        write(path, text.encode(), mode=_mode(path))
    except OSError as error:
        raise CtlError(f"cannot replace {path}: {error}") from error


def write(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Atomic and durable; with that mode, or for the owner alone."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def _mode(path: Path) -> int | None:
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else None


def read_file(path: Path, *, if_missing: str = "name a FILE, or --home DIR") -> str:
    """The text of a configuration file; raises CtlError, with `if_missing` as the hint."""
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError as error:
        raise CtlError(
            f"there is no {path}", exit_code=exits.NO_SUCH_OBJECT, hint=if_missing
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise CtlError(f"cannot read {path}: {error}") from error
