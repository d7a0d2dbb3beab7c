"""omlx.toml and its drop-ins, checked without the daemon."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from omlxctl.configfiles import read_file
from omlxd.control.wire import ConfigStatus
from omlxd.spec.parse import Reading, Source, read
from omlxd.spec.report import Problem


@dataclass(frozen=True, slots=True)
class Checked:
    path: str
    problems: tuple[Problem, ...]
    texts: dict[str, str]  # by file name as problems give it

    def status(self) -> ConfigStatus:
        return ConfigStatus(self.path, not self.problems, list(self.problems))


def check(path: Path, text: str) -> Checked:
    """`text` in the place of `path`, with the drop-ins in omlx.d beside it."""
    main = Source(str(path), text)
    drop_ins = _drop_ins(path.parent)
    texts = {source.file: source.text for source in (main, *drop_ins)}
    return Checked(str(path), tuple(read(main, drop_ins).problems), texts)


def read_home(path: Path, home: Path) -> Reading:
    """What omlx.toml at `path` says with the drop-ins of the home; a missing one says nothing."""
    text = read_file(path) if path.exists() else ""
    return read(Source(str(path), text), _drop_ins(home))


def _drop_ins(folder: Path) -> list[Source]:
    found = sorted((folder / "omlx.d").glob("*.toml"))
    return [Source(str(p), read_file(p)) for p in found if not p.name.startswith(".")]
