"""etc/omlx.toml.example: valid, complete, and true about every default."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from omlxd.spec.keys import Key, keys
from omlxd.spec.model import Spec
from omlxd.spec.parse import Source, read
from omlxd.spec.positions import positions

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "etc" / "omlx.toml.example").read_text()
COMMENTED = re.compile(r"^# (?=\[[a-z]+\.|[a-z_]+ = )", re.MULTILINE)
WHOLE = COMMENTED.sub("", TEXT)  # with the samples as if they were written
NAMES = {"models": "gpt-oss-120b-MXFP4-Q8", "mcp": "filesystem"}


def in_example(key: Key) -> tuple[Any, ...]:
    """Where the example has a key; what models share is shown under [defaults]."""
    if key.path[0] == "models" and not {"aliases", "path"} & set(key.path):
        return ("defaults", *key.path[2:])
    return tuple(NAMES[str(key.path[0])] if part == "*" else part for part in key.path)


def value_at(document: Any, path: tuple[Any, ...]) -> Any:
    for part in path:
        document = document[part]
    return document


def test_the_example_changes_nothing() -> None:
    """It is valid as it is and gives the built-in state."""
    result = read(Source("omlx.toml", TEXT))
    assert result.problems == ()
    assert result.spec == Spec()


@pytest.mark.parametrize("key", list(keys()), ids=lambda key: ".".join(map(str, key.path)))
def test_every_key_is_shown_with_its_default(key: Key) -> None:
    """A key with a default has it; one without, or of a table by name, is a commented sample."""
    path = in_example(key)
    assert path in positions(WHOLE)
    if key.default is None or path[0] == "models" or path[:2] == ("mcp", "servers"):
        assert path not in positions(TEXT)
    else:
        assert value_at(tomllib.loads(TEXT), path) == key.default


def test_nothing_else_is_shown() -> None:
    """Each key of the example, commented or not, is a key of the schema."""
    known = {in_example(key)[:depth] for key in keys() for depth in range(1, 6)}
    shown = {p for p in positions(WHOLE) if not any(isinstance(part, int) for part in p)}
    assert shown <= known


def test_samples_are_valid() -> None:
    """Every sample can be used as it stands."""
    assert read(Source("omlx.toml", WHOLE)).problems == ()


def test_every_key_has_its_line_of_explanation() -> None:
    """Above each key stands one comment with its reload class."""
    lines = WHOLE.split("\n")
    for path, (line, _) in positions(WHOLE).items():
        key = next((key for key in keys() if in_example(key) == path), None)
        if key is not None:
            assert lines[line - 2].startswith(f"# {key.doc} ({key.reload}"), path


def test_example_and_page_are_current() -> None:
    """What scripts/key_docs.py would write is what is there."""
    run = [sys.executable, ROOT / "scripts" / "key_docs.py", "--check"]
    done = subprocess.run(run, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
