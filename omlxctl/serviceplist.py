"""The plist that gives omlxd to launchd. Pure; launchd/README.md has the reasons of every key."""

from __future__ import annotations

import ipaddress
import math
import plistlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from xml.parsers.expat import ExpatError

from omlxd.spec.fields import split_address

LABEL = "io.omlx.omlxd"
DRAIN_MARGIN_S = 10  # for workers to stop and last words to be sent, after the drain
OPEN_FILES = 8192
_SYSTEM_PATH = (
    *("/opt/homebrew/bin", "/opt/homebrew/sbin", "/usr/local/bin"),
    *("/usr/bin", "/bin", "/usr/sbin", "/sbin"),
)
# A formula's files move with each version; the link to the newest one stays.
_CELLAR = re.compile(r"/Cellar/([^/]+)/[^/]+/")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the plist depends on. `program` and `home` are absolute."""

    program: Path
    home: Path
    listen: tuple[str, ...]
    shutdown_grace_s: float

    @property
    def stderr(self) -> Path:
        """What the daemon says before its log is open, and when it cannot be opened."""
        return self.home / "logs" / "stderr.log"

    @property
    def exit_timeout_s(self) -> int:
        return math.ceil(self.shutdown_grace_s) + DRAIN_MARGIN_S


def render(wanted: Wanted) -> dict[str, Any]:
    """The LaunchAgent, in the types that launchd.plist(5) asks for."""
    return {
        "Label": LABEL,
        "ProgramArguments": [str(wanted.program), "--home", str(wanted.home)],
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ExitTimeOut": wanted.exit_timeout_s,
        "ProcessType": "Interactive",
        "LimitLoadToSessionType": ["Aqua", "Background"],
        "SoftResourceLimits": {"NumberOfFiles": OPEN_FILES},
        "Umask": 0o077,  # an integer is decimal in the file: 63
        "WorkingDirectory": str(wanted.home),
        "EnvironmentVariables": {"PATH": _path(wanted.program), "PYTHONUTF8": "1"},
        "StandardErrorPath": str(wanted.stderr),
        "Sockets": {"http": [_socket(listen) for listen in wanted.listen]},
    }


def to_bytes(plist: dict[str, Any]) -> bytes:
    """As XML, in our order of keys; the same plist gives the same bytes."""
    return plistlib.dumps(plist, sort_keys=False)


def exit_timeout_of(data: bytes) -> int:
    """ExitTimeOut of a plist that was written before; 0 if it says nothing that can be read."""
    try:
        found = plistlib.loads(data).get("ExitTimeOut", 0)
    except (ExpatError, ValueError, LookupError, TypeError, AttributeError, OverflowError):
        return 0  # all that plistlib raises for what is no plist, or none of a job
    return found if isinstance(found, int) else 0


def stable_program(program: Path) -> Path:
    """The path under which a newer version will be found too."""
    return Path(_CELLAR.sub(r"/opt/\1/", str(program)))


def missing_variables(api_keys: Iterable[str]) -> list[str]:
    """Names of keys that are read from the environment, which launchd does not give."""
    return [key.removeprefix("env:") for key in api_keys if key.startswith("env:")]


def _path(program: Path) -> str:
    folders: Sequence[str] = (str(PurePosixPath(program).parent), *_SYSTEM_PATH)
    return ":".join(dict.fromkeys(folders))


def _socket(listen: str) -> dict[str, str]:
    """One address; a host name is resolved by launchd, and may give several sockets."""
    host, port = split_address(listen)
    found = {"SockNodeName": host, "SockServiceName": str(port), "SockType": "stream"}
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        return found
    return found | {"SockFamily": f"IPv{version}"}
