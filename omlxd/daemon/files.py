"""The files of the home: omlx.toml, its drop-ins, and what the daemon keeps for the next start.

Files that others may write, or that belong to another user, are refused, as ssh does: they decide
which code runs. Everything written here is private (0600) and replaced at once or not at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from omlxd.errors import SpecInvalid
from omlxd.spec import dropin
from omlxd.spec.parse import Reading, Source, read
from omlxd.spec.report import Problem

DROP_INS = "omlx.d"
_LAST_GOOD = "state/last-good.json"
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a fifo must not hang the daemon
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class Sources:
    """What is on disk. `problems` are those of files as such: unreadable, unsafe, not UTF-8."""

    config: str
    main: Source | None  # None = there is no omlx.toml, or it could not be taken
    drop_ins: tuple[Source, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Equal for equal content: a save that changes nothing is no change."""
        return hashlib.blake2b(msgspec.json.encode(self), digest_size=16).hexdigest()

    @property
    def override(self) -> str:
        """The text of the drop-in that omlxctl's settings are kept in."""
        texts = (one.text for one in self.drop_ins if Path(one.file).name == dropin.NAME)
        return next(texts, "")

    def reading(self) -> Reading:
        """What the files say, or every problem; no omlx.toml is an empty one."""
        reading = read(self.main or Source(self.config, ""), self.drop_ins)
        if not self.problems:
            return reading
        return Reading(None, self.problems + reading.problems, reading.files)


@dataclass(frozen=True, slots=True)
class LastGood:
    """The sources of the last accepted spec, and its generation."""

    generation: int
    sources: Sources


class Refused(Exception):
    """Why a file is not taken, and what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


# ------------------------------------------------------------------ reading


def load_sources(home: Path, config: Path) -> Sources:
    """omlx.toml at `config` and the drop-ins of the home, in the order of their names."""
    problems: list[Problem] = []
    main = _load(config, problems)
    found = [_load(path, problems) for path in _drop_in_paths(home / DROP_INS, problems)]
    drop_ins = tuple(source for source in found if source is not None)
    return Sources(str(config), main, drop_ins, tuple(problems))


def _drop_in_paths(folder: Path, problems: list[Problem]) -> list[Path]:
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        problems.append(_problem(folder, f"cannot be read: {error.strerror}"))
        return []
    return [folder / name for name in names if name.endswith(".toml") and name[0] != "."]


def _load(path: Path, problems: list[Problem]) -> Source | None:
    try:
        return Source(str(path), trusted_text(path))
    except FileNotFoundError:
        if path.is_symlink():
            problems.append(_problem(path, f"points to {os.readlink(path)}, which does not exist"))
    except Refused as refusal:
        problems.append(_problem(path, str(refusal), refusal.hint))
    except UnicodeDecodeError as error:
        problems.append(_problem(path, f"is not UTF-8 (byte {error.start}); save it as UTF-8"))
    except OSError as error:
        problems.append(_problem(path, f"cannot be read: {error.strerror}"))
    except RuntimeError:
        problems.append(_problem(path, "is a link that leads back to itself"))
    return None


def trusted_text(path: Path) -> str:
    """Text of a file that nobody but its owner can have written.

    Raises Refused, OSError, UnicodeDecodeError, or RuntimeError for a link back to itself.
    """
    real = path.resolve(strict=True)
    for folder in {path.parent, real.parent}:
        _refuse_unsafe(folder, folder.stat())
    descriptor = os.open(real, _OPEN)
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise Refused("is not a regular file")
        _refuse_unsafe(real, facts)
        return file.read().decode("utf-8")


def _refuse_unsafe(path: Path, facts: os.stat_result) -> None:
    if facts.st_uid not in (os.geteuid(), 0):
        message = f"refused: {path} belongs to another user (uid {facts.st_uid})"
        raise Refused(message, f'chown "$USER" {path}')
    if facts.st_mode & _OTHERS_WRITE:
        raise Refused(f"refused: others may write {path}", f"chmod go-w {path}")


def _problem(path: Path, message: str, hint: str = "") -> Problem:
    return Problem(str(path), 1, 1, "", message, hint)


# ------------------------------------------------------------------ writing


def write_private(path: Path, data: bytes) -> None:
    """Replace `path` at once or not at all, 0600, on disk when this returns."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _temporary(path) as (descriptor, name):
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)


def write_override(home: Path, text: str) -> None:
    """Replace the drop-in of omlxctl's settings; a link there is replaced, not followed."""
    write_private(home / DROP_INS / dropin.NAME, text.encode())


@contextlib.contextmanager
def _temporary(path: Path) -> Iterator[tuple[int, str]]:
    """A private file beside `path` under a name that no reader takes; gone if the body fails."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        yield descriptor, name
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


# ------------------------------------------------------------------ the last good state


def save_last_good(home: Path, sources: Sources, generation: int) -> None:
    """Keep what was accepted for a start that finds a broken file."""
    write_private(home / _LAST_GOOD, msgspec.json.encode(LastGood(generation, sources)))


def load_last_good(home: Path) -> LastGood | None:
    """None before the first accepted spec. Raises SpecInvalid when the copy cannot be used."""
    path = home / _LAST_GOOD
    try:
        return msgspec.json.decode(path.read_bytes(), type=LastGood)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        message = f"the last good state in {path} cannot be read ({error}); delete the file"
        raise SpecInvalid(message) from error
