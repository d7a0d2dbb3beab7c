"""What discovery knows of a model, as immutable facts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omlxd.ipc.messages import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One folder as it lies on disk, before anyone names it or grants it anything."""

    fingerprint: str  # of names, sizes and times of its files: equal = nothing to read again
    kind: Kind = "llm"
    weights_bytes: int = 0  # tensor data that the safetensors headers declare
    max_context: int | None = None  # the architecture's own window, tokens
    created: int = 0  # mtime of config.json, Unix seconds
    architectures: tuple[str, ...] = ()
    model_type: str = ""
    num_labels: int = 1  # of a classifier
    custom_code: str = ""  # the config key that names code of the model's own
    defect: str = ""  # why it cannot be loaded, whoever asks


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """One model by the name it is served under."""

    id: str  # TOML key if declared, else the path under the model folder
    path: Path  # real path; of a declared model that was not found, an empty one
    names: tuple[str, ...] = ()  # every path under a model folder that leads to it
    declared: bool = False
    kind: Kind = "llm"
    weights_bytes: int = 0
    max_context: int | None = None
    created: int = 0
    servable: bool = True
    reason: str = ""  # why it is not servable, and what to do
    fingerprint: str = ""
    architectures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ScanProblem:
    """Something of the scan itself that the user should know; the models of it are missing."""

    path: Path
    message: str

    @property
    def where(self) -> str:
        """The path as text that can be sent: bytes that are not UTF-8 come as \\xff."""
        return os.fsencode(self.path).decode(errors="backslashreplace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """Everything found by one scan; hand it to the next one as `previous`."""

    cards: Mapping[str, ModelCard] = field(default_factory=dict)
    problems: tuple[ScanProblem, ...] = ()
    readings: Mapping[Path, Reading] = field(default_factory=dict)  # by real path
