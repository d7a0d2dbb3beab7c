"""A process that writes to a cold tier until it is killed; says a line after every request.

python -m tests.support.prefix_writer MODEL FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.engine import EngineRig
from tests.support.prefixes import BLOCK, cold, tokens


def prompt(number: int) -> list[int]:
    return [*tokens(200, number % 3), *tokens(40, number)]


def main(model: Path, folder: Path) -> None:
    settings = cold(folder)
    with EngineRig(model, settings.pop("live"), block_tokens=BLOCK, **settings) as rig:
        for number in range(10_000):
            rig.submit(f"r{number}", prompt(number), max_tokens=8)
            rig.wait(f"r{number}")
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
