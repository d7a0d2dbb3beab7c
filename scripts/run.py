"""`make run`: serve the small model in the foreground. The home, .omlx, stays for the next time."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

from demo_home import MODEL, ROOT, free_port, save_spec

HOME = ROOT / ".omlx"

HINTS = """\
Serving {model} on http://{listen} (Ctrl-C stops it). In another terminal:

  curl http://{listen}/v1/chat/completions -H 'content-type: application/json' \\
    -d '{{"model": "{model}", "messages": [{{"role": "user", "content": "Hello!"}}]}}'
  .venv/bin/omlxctl --home .omlx status

Edit .omlx/omlx.toml and save: it is in force at once.
"""


def main() -> None:
    spec = HOME / "omlx.toml"
    if not spec.exists():
        save_spec(HOME, port=free_port(8000), settings="pin = true")
    print(HINTS.format(model=MODEL, listen=_listen(spec)), flush=True)
    omlxd = ROOT / ".venv" / "bin" / "omlxd"
    os.execv(omlxd, [str(omlxd), "--home", str(HOME)])


def _listen(spec: Path) -> str:
    """The address to tell; what is wrong with an edited file is for the daemon to say."""
    try:
        listen = tomllib.loads(spec.read_text(encoding="utf-8"))["server"]["listen"]
    except (tomllib.TOMLDecodeError, KeyError):
        return "127.0.0.1:8000"
    return str(listen[0] if isinstance(listen, list) else listen)


if __name__ == "__main__":
    main()
