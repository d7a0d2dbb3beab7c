"""What a change of the service is made of: steps and their results. Pure."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from omlxctl.serviceplist import LABEL


@dataclass(frozen=True, slots=True)
class Command:
    """Run a program; the result has its exit code and what it said."""

    argv: tuple[str, ...]
    stdin: bytes = b""
    only_looks: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class MakeFolder:
    """If it is missing, with that mode."""

    path: Path
    mode: int


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Mode 0644, at once or not at all."""

    path: Path
    data: bytes


@dataclass(frozen=True, slots=True)
class RemoveFile:
    path: Path


@dataclass(frozen=True, slots=True)
class AskDaemon:
    """The pid of whoever answers on the control socket, other than `but`; None after `within_s`."""

    within_s: float = 0.0
    but: int | None = None


Step = Command | Pause | MakeFolder | WriteFile | RemoveFile | AskDaemon


@dataclass(frozen=True, slots=True)
class Result:
    code: int = 0
    said: str = ""
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """The service as it should be, and what is on disk of it."""

    uid: int
    path: Path  # of the plist
    data: bytes  # of the plist
    home: Path
    exit_timeout_s: float  # the longer one of the plist in force and the new one
    on_disk: bytes | None = None
    homebrew: tuple[Path, ...] = ()  # plists of a Homebrew service that are there

    @property
    def domains(self) -> tuple[str, str]:
        """With a login at the console, and without."""
        return f"gui/{self.uid}", f"user/{self.uid}"

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(f"{domain}/{LABEL}" for domain in self.domains)


@dataclass(frozen=True, slots=True)
class Outcome:
    """`status`: running, loaded (the next connection starts it), stopped or absent."""

    status: str
    told: str
    target: str = ""
    pid: int | None = None
    notes: tuple[str, ...] = ()


Steps = Generator[Step, Result, Outcome]
