"""`omlxd` and `python -m omlxd`."""

from __future__ import annotations

import sys


def main() -> None:
    from omlxd.daemon.main import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
