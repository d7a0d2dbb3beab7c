"""omlx.toml and its drop-ins, checked without the daemon."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from omlxctl.configfiles import read_file
from omlxd.control.wire import ConfigStatus
from omlxd.spec.parse import Source, read
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
    found = sorted((path.parent / "omlx.d").glob("*.toml"))
    drop_ins = [Source(str(p), read_file(p)) for p in found if not p.name.startswith(".")]
    texts = {source.file: source.text for source in (main, *drop_ins)}
    return Checked(str(path), tuple(read(main, drop_ins).problems), texts)
