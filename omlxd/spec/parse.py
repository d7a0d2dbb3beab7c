"""omlx.toml and its drop-ins: texts in, the desired state or every problem out.

Each file is checked by itself, so a wrong value is reported where it stands even if a later file
overrides it; rules that span keys are checked on the merged document. Positions are looked up only
when there is something to report.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from omlxd.spec.keys import dotted, redacted
from omlxd.spec.leaves import Leaf, leaves
from omlxd.spec.merge import overlay_all
from omlxd.spec.model import File, Spec
from omlxd.spec.positions import Path, Position, nearest, positions
from omlxd.spec.problems import Finding, findings, syntax_problem
from omlxd.spec.report import OriginValue, Problem
from omlxd.spec.rules import broken_rules


@dataclass(frozen=True, slots=True)
class Source:
    """One file: its name as people know it, and its text."""

    file: str
    text: str


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value in force was written."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class _Parsed:
    """One file that is valid TOML."""

    source: Source
    document: dict[str, Any]

    @cached_property
    def positions(self) -> dict[Path, Position]:
        return positions(_clean(self.source.text))

    def problem(self, finding: Finding) -> Problem:
        line, column = nearest(self.positions, finding.path)
        key = dotted(finding.path)
        return Problem(self.source.file, line, column, key, finding.message, finding.hint)


@dataclass(frozen=True)
class _Files:
    """All files that are valid TOML, in the order in which they are laid over each other."""

    parsed: tuple[_Parsed, ...]

    @cached_property
    def merged(self) -> dict[str, Any]:
        return overlay_all(one.document for one in self.parsed)

    @cached_property
    def origins(self) -> dict[Path, Origin]:
        """Where the value in force of every written key stands; a later file wins."""
        return {
            path: Origin(one.source.file, line, column)
            for one in self.parsed
            for path, (line, column) in one.positions.items()
        }

    def own_problems(self) -> Iterator[Problem]:
        for one in self.parsed:
            try:
                File.model_validate(one.document)
            except ValidationError as error:
                yield from map(one.problem, findings(error, one.document))

    def shared_problems(self) -> Iterator[Problem]:
        for finding in broken_rules(self.merged, lambda path: str(self.origins[path])):
            at, key = self.origins[finding.path], dotted(finding.path)
            yield Problem(at.file, at.line, at.column, key, finding.message, finding.hint)


@dataclass(frozen=True)
class Reading:
    """What the files say. `spec` is None when there are problems, and only then."""

    spec: Spec | None
    problems: tuple[Problem, ...]
    files: _Files

    @property
    def origins(self) -> Mapping[Path, Origin]:
        """Path of every key that is written somewhere → where the value in force stands."""
        return self.files.origins

    def origin(self, path: Path) -> Origin | None:
        """Who decides a key: its own place, for a model else `[defaults]`; None = built in."""
        found = self.origins.get(path)
        if found is None and path[0] == "models":
            found = self.origins.get(("defaults", *path[2:]))
        return found

    def values(self) -> list[OriginValue]:
        """Every value in force, with literal secrets hidden; needs a valid reading."""
        assert self.spec is not None, "values() of a reading with problems"
        return [self._value(leaf) for leaf in leaves(self.spec)]

    def _value(self, leaf: Leaf) -> OriginValue:
        key, origin = dotted(leaf.path), self.origin(leaf.path)
        value = redacted(key, leaf.value)
        if origin is None:
            return OriginValue(key, value)
        return OriginValue(key, value, origin.file, origin.line)


def read(main: Source, drop_ins: Sequence[Source] = ()) -> Reading:
    """`drop_ins` in the order in which they are laid over `main`."""
    sources = (main, *drop_ins)
    problems: list[Problem] = []
    parsed: list[_Parsed] = []
    for source in sources:
        text = _clean(source.text)
        try:
            parsed.append(_Parsed(source, tomllib.loads(text)))
        except (ValueError, RecursionError) as error:
            problems.append(syntax_problem(source.file, text, error))
    files = _Files(tuple(parsed))
    problems += files.own_problems()
    problems += files.shared_problems()
    spec = None if problems else Spec.model_validate(files.merged)
    order = {source.file: index for index, source in enumerate(sources)}
    problems.sort(key=lambda problem: (order[problem.file], problem.line, problem.column))
    return Reading(spec, tuple(problems), files)


def _clean(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n")
