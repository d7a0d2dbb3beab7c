"""What a scan needs of the spec: where to look, and what is declared."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from omlxd.spec.model import Spec

if TYPE_CHECKING:
    from omlxd.ipc.messages import Kind


@dataclass(frozen=True, slots=True)
class ScanInputs:
    """Equal = the folders need no new look for the spec's sake."""

    folders: tuple[Path, ...] = ()
    declared: Mapping[str, Path | None] = field(default_factory=dict)
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    trusted: frozenset[str] = frozenset()


def scan_inputs(home: Path, spec: Spec) -> ScanInputs:
    """`trust_remote_code` and `kind` of `[defaults]` count for declared models only."""
    models = spec.models.items()
    return ScanInputs(
        folders=model_folders(home, spec),
        declared={n: None if m.path is None else resolve_path(home, m.path) for n, m in models},
        kinds={name: model.kind for name, model in models if model.kind is not None},
        trusted=frozenset(name for name, model in models if model.trust_remote_code),
    )


def model_folders(home: Path, spec: Spec) -> tuple[Path, ...]:
    return tuple(resolve_path(home, text) for text in spec.paths.models)


def resolve_path(home: Path, text: str) -> Path:
    """A path of omlx.toml: relative to the home; "~/.omlx" stands for the home, wherever it is."""
    if text == "~/.omlx" or text.startswith("~/.omlx/"):
        text = text.removeprefix("~/.omlx").lstrip("/")
    with contextlib.suppress(RuntimeError):  # there is no such user, so no such folder
        return home / Path(text).expanduser()
    return home / text
