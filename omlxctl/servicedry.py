"""The steps told instead of done, against a launchd that is only thought of. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from omlxctl.serviceplist import LABEL
from omlxctl.servicesteps import (
    AskDaemon,
    Command,
    MakeFolder,
    Pause,
    RemoveFile,
    Result,
    Step,
    WriteFile,
)

NOT_LOADED = Result(113)
OK = Result()


class ThoughtOf:
    """A Mac with a login at the console, where the service is loaded and runs, or neither."""

    def __init__(self, *, runs: bool) -> None:
        self._runs = runs

    def __call__(self, step: Step) -> Result:
        match step:
            case Command((_, "print", target), _, True):
                domain, _, label = target.partition(f"/{LABEL}")
                there = self._runs if target != domain else "." not in target
                return OK if there and domain.startswith("gui/") and not label else NOT_LOADED
            case AskDaemon():
                return Result(pid=0 if self._runs else None)
        return OK


class Rehearsal:
    """Answers looks with `look` until a step would have changed the answer; keeps the others."""

    def __init__(self, look: Callable[[Step], Result]) -> None:
        self._look = look
        self._loaded: dict[str, bool] = {}  # target → after the steps told so far
        self.told: list[Step] = []

    def __call__(self, step: Step) -> Result:
        match step:
            case Command((_, "print", target), _, True):
                if target in self._loaded:
                    return OK if self._loaded[target] else NOT_LOADED
                return self._look(step)
            case AskDaemon(within_s):
                return self._look(step) if not within_s else Result(pid=0)
            case Command((_, "bootout", target)):
                self._loaded[target] = False
            case Command((_, "bootstrap", domain, _)):
                self._loaded[f"{domain}/{LABEL}"] = True
        self.told.append(step)
        return OK


def lines_of(step: Step) -> list[str]:
    """A step as a person would do it."""
    match step:
        case Command(argv, stdin):
            return [shlex.join(argv) + ("  # of what is written below" if stdin else "")]
        case MakeFolder(path, mode):
            return [f"mkdir -p -m {mode:o} {shlex.quote(str(path))}"]
        case WriteFile(path, data):
            return [f"cat > {shlex.quote(str(path))} <<'END'", *data.decode().splitlines(), "END"]
        case RemoveFile(path):
            return [f"rm {shlex.quote(str(path))}"]
        case Pause(seconds):
            return [f"sleep {seconds:g}"]
        case AskDaemon():
            return []
