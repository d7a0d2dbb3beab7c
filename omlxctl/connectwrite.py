"""Clients' settings files: written so that they can be put back exactly as they were.

Beside a file lie its first state (`.omlxd-backup`) and a record of what was written since
(`.omlxd-undo.json`), both for the owner alone. A symbolic link keeps pointing where it did.
"""

from __future__ import annotations

import hashlib
import shlex
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from omlxctl import exits, jsonedit, tomledit
from omlxctl.configfiles import write
from omlxctl.connectclients import SettingsFile
from omlxctl.exits import CtlError
from omlxctl.textedit import NotEditable

BACKUP = ".omlxd-backup"
RECORD = ".omlxd-undo.json"
_GROUP_AND_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one file."""

    path: Path
    result: Literal["written", "unchanged", "restored", "removed"]
    backup: Path | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """One file that is ready to be written."""

    path: Path  # behind links
    old: bytes | None  # None = there is no file
    new: bytes
    private: bool  # it holds a key
    places: tuple[str, ...]  # of all that is put into it


class _Record(msgspec.Struct):
    existed: bool
    mode: int | None
    written: list[str]  # SHA-256 of every text of ours, oldest first
    places: list[str]  # of all that we put into it
    touched: bool = False  # somebody else changed the file in between


def rendered(file: SettingsFile, text: str = "") -> str:
    """`text` with what the client needs in it. Raises NotEditable."""
    put = jsonedit.put if file.form == "json" else tomledit.put
    return put(text, file.entries)


# ------------------------------------------------------------------ writing


def prepare(file: SettingsFile, *, private: bool) -> Edit:
    """The file as it is to be. Raises CtlError, with what to add by hand; nothing is written."""
    path = _real(file.path)
    old = _read(path)
    try:
        text = "" if old is None else old.decode("utf-8")
        places = tuple(entry.place for entry in file.entries)
        return Edit(path, old, rendered(file, text).encode(), private, places)
    except (NotEditable, UnicodeDecodeError) as error:
        reason = str(error) if isinstance(error, NotEditable) else "is not UTF-8"
        raise CtlError(
            f"{file.path} was not changed: the file {reason}",
            hint=f"put this into it by hand:\n{rendered(file)}",
        ) from error


def carry_out(edit: Edit) -> Outcome:
    """Writes the file, if it is to change; its first state is kept."""
    path, mode = edit.path, _mode(edit.path)
    wanted = mode if mode is None or not edit.private else mode & ~_GROUP_AND_OTHERS
    if edit.old == edit.new and mode == wanted:
        return Outcome(path, "unchanged", _kept(path))
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        record = _record(path)
        if record is None:
            record = _Record(edit.old is not None, mode, [], [])
            if edit.old is not None:
                write(_beside(path, BACKUP), edit.old)
        elif _digest(edit.old) not in record.written:
            record.touched = True
        record.written.append(_digest(edit.new))
        record.places += [place for place in edit.places if place not in record.places]
        write(_beside(path, RECORD), msgspec.json.encode(record))
        write(path, edit.new, mode=wanted)
    except OSError as error:
        raise CtlError(f"cannot write {path}: {error}") from error
    return Outcome(path, "written", _kept(path))


# ------------------------------------------------------------------ undoing


def undo(paths: tuple[Path, ...], client: str) -> list[Outcome]:
    """Every file as it was before the first write; all of them or, where one changed, none."""
    recorded = [real for path in paths if _record(real := _real(path)) is not None]
    if not recorded:
        looked = ", ".join(str(path) for path in paths) or "no file is ever written for it"
        raise CtlError(
            f"there is nothing to undo for {client}: {looked}",
            exit_code=exits.NO_SUCH_OBJECT,
            hint="only what `omlxctl connect CLIENT --write` wrote can be undone",
        )
    for path in recorded:
        _refuse_changed(path)
    return [_restore(path) for path in recorded]


def _refuse_changed(path: Path) -> None:
    record, current, first = _record(path), _read(path), _first(path)
    assert record is not None
    if current == first or (not record.touched and _digest(current) in record.written):
        return
    by_hand = f"take out by hand what was put in: {', '.join(record.places)}"
    if record.existed:
        backup, shown = shlex.quote(str(_beside(path, BACKUP))), shlex.quote(str(path))
        by_hand += f"\n  or take the old file, cp {backup} {shown}, after diff {backup} {shown}"
    raise CtlError(
        f"{path} was not put back: it has been changed since, and that would be lost",
        exit_code=exits.CONFLICT,
        hint=by_hand,
    )


def _restore(path: Path) -> Outcome:
    record, first = _record(path), _first(path)
    assert record is not None
    try:
        if first is None:
            path.unlink(missing_ok=True)
        else:
            write(path, first, mode=record.mode)
        _beside(path, RECORD).unlink()
        _beside(path, BACKUP).unlink(missing_ok=True)
    except OSError as error:
        raise CtlError(f"cannot put {path} back: {error}") from error
    return Outcome(path, "removed" if first is None else "restored")


# ------------------------------------------------------------------ on disk


def _record(path: Path) -> _Record | None:
    found = _read(_beside(path, RECORD))
    if found is None:
        return None
    try:
        record = msgspec.json.decode(found, type=_Record)
    except msgspec.DecodeError as error:
        raise _lost(path, f"cannot be read ({error})") from error
    if record.existed and not _beside(path, BACKUP).exists():
        raise _lost(path, f"has no {_beside(path, BACKUP).name} beside it")
    return record


def _lost(path: Path, what: str) -> CtlError:
    record = _beside(path, RECORD)
    return CtlError(
        f"the record {record} {what}, so {path} cannot be put back",
        hint=f"look at {path} yourself, then remove {record}",
    )


def _first(path: Path) -> bytes | None:
    """The state before the first write; None = there was no file."""
    record = _record(path)
    return _read(_beside(path, BACKUP)) if record is not None and record.existed else None


def _kept(path: Path) -> Path | None:
    backup = _beside(path, BACKUP)
    return backup if backup.exists() else None


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _digest(data: bytes | None) -> str:
    return "" if data is None else hashlib.sha256(data).hexdigest()


def _real(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:
        raise CtlError(f"cannot follow {path}: {error}") from error


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CtlError(f"cannot read {path}: {error}") from error


def _mode(path: Path) -> int | None:
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else None
