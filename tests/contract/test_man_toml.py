"""man/omlx.toml.5: every key with default and reload class, and it formats."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from omlxd.spec.keys import Key, keys
from omlxd.spec.parse import Source, read

PAGE = Path(__file__).parents[2] / "man" / "omlx.toml.5"
SHARED = [
    key for key in keys() if key.path[0] == "models" and key.path[2] not in ("aliases", "path")
]
SHOWN = [key for key in keys() if key not in SHARED]


def plain(text: str) -> str:
    """The text of roff source as a reader sees it."""
    for escape, meant in (("\\-", "-"), ("\\(dq", '"'), ("\\(ti", "~"), ("\\&", ""), ("\\e", "\\")):
        text = text.replace(escape, meant)
    return text


def entries() -> dict[tuple[str, str], list[str]]:
    """(table, key) → the lines of its entry."""
    found: dict[tuple[str, str], list[str]] = {}
    table, lines = "", []
    for line in plain(PAGE.read_text()).split("\n"):
        if match := re.fullmatch(r"\.S[SH] (.*)", line):
            table, lines = match[1], []
        elif match := re.fullmatch(r'\.BR (\w+) " \(" (\w+) "\)"', line):
            lines = found.setdefault((table, match[1]), [match[2]])
        else:
            lines.append(line)
    return found


def place(key: Key) -> tuple[str, str]:
    *table, name = ("NAME" if part == "*" else str(part) for part in key.path)
    return f"[{'.'.join(table)}]", name


@pytest.mark.parametrize("key", SHOWN, ids=lambda key: ".".join(map(str, key.path)))
def test_every_key_is_explained(key: Key) -> None:
    """The entry has the reload class, the explanation, the default, and what is not built."""
    reload, doc, default, *rest = entries()[place(key)]
    assert reload == key.reload
    assert doc.lower() == f"{key.doc}.".lower()
    written: Any = re.fullmatch(r"Default: (.*)\.", default)
    if key.default is None:
        assert written[1] == "not set"
    else:
        assert tomllib.loads(f"v = {written[1]}") == {"v": key.default}
    assert any("This version accepts only" in line for line in rest) != key.built


def test_nothing_else_is_explained() -> None:
    """The page has no key that the schema has not."""
    assert set(entries()) == {place(key) for key in SHOWN}


def test_the_example_is_valid() -> None:
    """What the page shows as an example is taken by the reader."""
    example = re.search(r"^\.EX\n(.*?)^\.EE", plain(PAGE.read_text()), re.MULTILINE | re.DOTALL)
    assert example is not None
    assert read(Source("omlx.toml", example[1])).problems == ()


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff formats man pages")
def test_the_page_formats_without_warnings() -> None:
    """groff has nothing to say about the source."""
    run = ["groff", "-man", "-ww", "-Tutf8", str(PAGE)]
    done = subprocess.run(run, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "OMLX.TOML(5)" in done.stdout
