"""The spec in force, and how the files on disk become it.

Blocking (it reads and writes files): the daemon calls it in a thread, one call at a time. A bad
file changes nothing but `problems`; at start the last good state stands in for it.
"""

from __future__ import annotations

import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from omlxd.daemon.files import (
    DROP_INS,
    Sources,
    load_last_good,
    load_sources,
    save_last_good,
    write_override,
)
from omlxd.daemon.references import Resolved, referenced_files, resolve_references
from omlxd.errors import OmlxError, SpecInvalid
from omlxd.spec import dropin
from omlxd.spec.diff import diff
from omlxd.spec.keys import dotted, keys
from omlxd.spec.model import Spec
from omlxd.spec.parse import Reading, Source
from omlxd.spec.positions import Path as KeyPath
from omlxd.spec.report import Change, OriginValue, Problem

BLANK_BELIEVED_S = 2.0  # an omlx.toml that turned blank counts after this long: writers truncate


@dataclass(frozen=True, slots=True)
class InForce:
    """One accepted state of the files."""

    sources: Sources
    reading: Reading
    spec: Spec
    resolved: Resolved


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a reading of the files led to."""

    accepted: bool = False  # a new generation
    is_first: bool = False  # nothing was in force before
    changes: Sequence[Change] = ()
    released: Sequence[tuple[str, str]] = ()  # model and key that omlx.toml took back
    rejected: bool = False  # problems that were not there before
    notes: Sequence[str] = ()  # what went wrong beside
    look_again_s: float = 0.0  # the files are on their way to something: look again after this


def read_sources(sources: Sources, home: Path) -> tuple[InForce | None, tuple[Problem, ...]]:
    """The state the sources describe, or every problem."""
    return _resolved(sources, sources.reading(), home)


def _resolved(
    sources: Sources, reading: Reading, home: Path
) -> tuple[InForce | None, tuple[Problem, ...]]:
    if reading.spec is None:
        return None, reading.problems

    def locate(path: KeyPath, message: str) -> Problem:
        origin = reading.origin(path) or reading.origin(path[:-1])
        assert origin is not None, path
        return Problem(origin.file, origin.line, origin.column, dotted(path), message)

    resolved = resolve_references(reading.spec, home, locate)
    if resolved.problems:
        return None, resolved.problems
    return InForce(sources, reading, reading.spec, resolved), ()


def read_files(home: Path, path: Path) -> tuple[Problem, ...]:
    """Every problem of the files on disk."""
    return read_sources(load_sources(home, path), home)[1]


class ConfigStore:
    """Owns the spec in force, its generation and the files omlxd itself writes for it."""

    def __init__(
        self, home: Path, path: Path, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.home = home
        self.path = path
        self._clock = clock
        self._blank_since: float | None = float("-inf")  # blank at the start = blank for long
        self.generation = 0
        self.problems: tuple[Problem, ...] = ()
        self.in_force: InForce | None = None
        self.referenced: tuple[Path, ...] = ()  # files that the spec on disk points to

    @property
    def spec(self) -> Spec | None:
        return self.in_force.spec if self.in_force else None

    # -------------------------------------------------------------- reading

    def start(self) -> Outcome:
        """The files, else the last good state, else nothing."""
        notes: list[str] = []
        try:
            last = load_last_good(self.home)
        except SpecInvalid as error:
            last = None
            notes.append(error.message)
        if last is not None:
            self.generation = last.generation
            self.in_force, problems = read_sources(last.sources, self.home)
            notes += [f"last good state: {p.file}:{p.line}: {p.message}" for p in problems]
        outcome = self.reload()
        return replace(outcome, notes=(*notes, *outcome.notes))

    def reload(self) -> Outcome:
        """Look at the files; the same content as before is no change."""
        sources, left_s = self._look()
        return replace(self._reload(sources), look_again_s=left_s)

    def _reload(self, sources: Sources) -> Outcome:
        text, released = self._released(sources)
        freed = _with_override(sources, self.home, text) if released else sources
        fresh, problems = self._read(freed)
        if fresh is None or not released:
            return self._take(fresh, problems)
        try:
            write_override(self.home, text)
        except OSError as error:
            note = f"what omlxctl had set stays, its file cannot be written: {error}"
            return replace(self._take(*self._read(sources)), notes=(note,))
        return replace(self._take(fresh, ()), released=released)

    def patch(self, model: str, values: Mapping[str, Any], unset: Sequence[str]) -> Outcome:
        """Set and unset keys of one model in omlxd's own drop-in.

        Raises SpecInvalid, or OmlxError when the file cannot be written; then nothing has changed.
        """
        if unknown := _unknown_keys(model, unset):
            raise _nothing_changed(unknown)
        sources, left_s = self._look()
        if not _is_toml(sources.override):
            raise _nothing_changed(self._read(sources)[1])
        # A save of omlx.toml that nobody has looked at yet is older than this patch.
        text, released = self._released(sources)
        text = dropin.patched(text, model, values, unset)
        fresh, problems = self._read(_with_override(sources, self.home, text))
        if fresh is None:
            file = str(self.home / DROP_INS / dropin.NAME)
            raise _nothing_changed(tuple(_unplaced(p) if p.file == file else p for p in problems))
        try:
            write_override(self.home, text)
        except OSError as error:
            message = f"nothing was changed: {DROP_INS}/{dropin.NAME} cannot be written: {error}"
            raise OmlxError(message) from error
        return replace(self._take(fresh, ()), released=released, look_again_s=left_s)

    def _look(self) -> tuple[Sources, float]:
        """The files, and seconds until an omlx.toml that has just turned blank is believed.

        Until then it stands in the sources as it is in force.
        """
        sources = load_sources(self.home, self.path)
        in_force = self.in_force.sources.main if self.in_force else None
        if not _is_blank(sources.main) or in_force is None or _is_blank(in_force):
            self._blank_since = None
            return sources, 0.0
        now = self._clock()
        if self._blank_since is None:
            self._blank_since = now
        left_s = self._blank_since + BLANK_BELIEVED_S - now
        return (replace(sources, main=in_force), left_s) if left_s > 0 else (sources, 0.0)

    def _take(self, fresh: InForce | None, problems: tuple[Problem, ...]) -> Outcome:
        """Put a reading in force, if it can be and differs."""
        before, self.problems = self.problems, problems
        if fresh is None:
            return Outcome(rejected=problems != before)
        old, self.in_force = self.in_force, fresh
        if old is not None and _is_same(old, fresh):
            return Outcome()
        self.generation += 1
        return Outcome(
            accepted=True,
            is_first=old is None,
            changes=diff(old.spec, fresh.spec) if old else (),
            notes=self._keep(fresh.sources),
        )

    def _read(self, sources: Sources) -> tuple[InForce | None, tuple[Problem, ...]]:
        reading = sources.reading()
        if reading.spec is not None:
            self.referenced = referenced_files(reading.spec, self.home)
        fresh, problems = _resolved(sources, reading, self.home)
        if fresh is not None and self._has_vanished(sources):
            return None, (_vanished(self.path),)
        return fresh, problems

    def _has_vanished(self, sources: Sources) -> bool:
        """A file that was in force and is not there: most likely an accident, never an order."""
        was_there = self.in_force is not None and self.in_force.sources.main is not None
        return was_there and sources.main is None

    def _released(self, sources: Sources) -> tuple[str, Sequence[tuple[str, str]]]:
        """Last writer wins: the drop-in without what a save of omlx.toml took back, and that."""
        override = sources.override
        if self.in_force is None or self.in_force.sources.main is None or sources.main is None:
            return override, ()
        old, new = self.in_force.sources.main.text, sources.main.text
        if old == new or not override or not _is_toml(new, override):
            return override, ()
        return dropin.released(old, new, override)

    def _keep(self, sources: Sources) -> Sequence[str]:
        try:
            save_last_good(self.home, sources, self.generation)
        except OSError as error:
            return (f"the last good state could not be saved: {error}",)
        return ()

    # -------------------------------------------------------------- what is in force

    def drop_ins(self) -> list[str]:
        return [s.file for s in self.in_force.sources.drop_ins] if self.in_force else []

    def values_in_force(self) -> list[OriginValue]:
        return self.in_force.reading.values() if self.in_force else []

    def pinned_by(self) -> dict[str, str]:
        """File (and line) that pins each pinned model."""
        if self.in_force is None:
            return {}
        found = {}
        for name, model in self.in_force.spec.models.items():
            origin = self.in_force.reading.origin(("models", name, "pin"))
            if model.pin and origin is not None:
                found[name] = f"{origin.file}:{origin.line}"
        return found

    def dry_run(self, text: str, file: str) -> tuple[Spec | None, tuple[Problem, ...]]:
        """What omlx.toml with this text would be, with the drop-ins as they are."""
        sources = load_sources(self.home, self.path)
        main = Source(file or str(self.path), text)
        candidate = Sources(sources.config, main, sources.drop_ins)
        fresh, problems = read_sources(candidate, self.home)
        return (fresh.spec if fresh else None), problems


def _is_same(old: InForce, new: InForce) -> bool:
    return old.sources.fingerprint == new.sources.fingerprint and old.resolved == new.resolved


def _nothing_changed(problems: tuple[Problem, ...]) -> SpecInvalid:
    first = problems[0]
    where = first.key or first.file
    return SpecInvalid(f"nothing was changed: {where}: {first.message}", problems=problems)


def _unknown_keys(model: str, names: Sequence[str]) -> tuple[Problem, ...]:
    """One problem for each name that is neither a key of a model, nor a table, nor in one."""
    known = {".".join(map(str, key.path[2:])): key for key in keys() if key.path[0] == "models"}
    tables = {name.rpartition(".")[0] for name in known}
    free = tuple(f"{name}." for name, key in known.items() if isinstance(key.default, dict))
    found = []
    for name in names:
        if not name or not (name in known or name in tables or name.startswith(free)):
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else ""
            path = dotted(("models", model, *name.split(".")))
            found.append(Problem("", 0, 0, path, f"{name!r} is no key of a model", hint))
    return tuple(found)


def _unplaced(problem: Problem) -> Problem:
    """Of a text that was not written: there is no line to point to, only the key."""
    return Problem("", 0, 0, problem.key, problem.message, problem.hint)


def _vanished(path: Path) -> Problem:
    hint = "put it back; an empty file stands for the defaults"
    return Problem(str(path), 1, 1, "", "is gone", hint)


def _is_blank(source: Source | None) -> bool:
    """There is a file, without a word in it."""
    return source is not None and not source.text.strip("\ufeff \t\r\n")


def _with_override(sources: Sources, home: Path, text: str) -> Sources:
    file = str(home / DROP_INS / dropin.NAME)
    others = [one for one in sources.drop_ins if Path(one.file).name != dropin.NAME]
    drop_ins = sorted([*others, Source(file, text)], key=lambda one: Path(one.file).name)
    return Sources(sources.config, sources.main, tuple(drop_ins), sources.problems)


def _is_toml(*texts: str) -> bool:
    try:
        for text in texts:
            tomllib.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError):  # as in omlxd.spec.parse
        return False
    return True
