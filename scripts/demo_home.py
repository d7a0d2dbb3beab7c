"""The homes that `make demo` and `make run` serve from: an omlx.toml beside the small models."""

from __future__ import annotations

import os
import socket
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODEL = "SmolLM2-135M-Instruct"
EMBEDDER = "all-MiniLM-L6-v2"

TEMPLATE = """\
[server]
listen = "127.0.0.1:{port}"

[paths]
models = ["{models}"]

[models."{model}"]
{settings}
"""


def free_port(preferred: int = 0) -> int:
    """`preferred` if nothing listens there, else one that the system picks."""
    for port in (preferred, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            chosen: int = probe.getsockname()[1]
            return chosen
    raise SystemExit("no free port on 127.0.0.1")


def save_spec(home: Path, *, port: int, settings: str) -> None:
    """Write omlx.toml as editors do: a new file, renamed over the old one."""
    home.mkdir(mode=0o700, exist_ok=True)
    text = TEMPLATE.format(port=port, models=ROOT / ".models", model=MODEL, settings=settings)
    draft = home / ".omlx.toml.new"
    draft.write_text(text, encoding="utf-8")
    draft.chmod(0o600)  # a file that others may write is refused
    os.replace(draft, home / "omlx.toml")
