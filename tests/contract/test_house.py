"""The rules of the house that no linter holds: sizes, names, and documents that stay true."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import omlxd

ROOT = Path(__file__).resolve().parents[2]
CODE_FOLDERS = ("omlxd", "omlxctl", "tests", "scripts", "benchmarks")
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 70
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}
LEFTOVERS = {
    "an unfinished thought": re.compile(r"\b(TODO|FIXME|XXX|HACK)\b"),
    "a package registry's host": re.compile(
        r"pypi\.org|pythonhosted\.org|npmjs\.(org|com)|(deb|debian)\.org", re.IGNORECASE
    ),
    "a path of somebody's machine": re.compile(r"(?<![\w.])/(root|work)/|/home/(?!you\b)\w+/"),
}


def _code_files() -> list[Path]:
    """Python files, and the shell scripts, which have no suffix."""
    python = (path for folder in CODE_FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return sorted([*python, *_shell_scripts()])


def _shell_scripts() -> list[Path]:
    scripts = (path for path in (ROOT / "scripts").iterdir() if path.is_file() and not path.suffix)
    return [*scripts, ROOT / ".ci" / "run"]


def _python_files() -> list[Path]:
    return [path for path in _code_files() if path.suffix == ".py"]


def _documents() -> list[Path]:
    named = [ROOT / name for name in ("Makefile", "pyproject.toml")]
    return [*named, *ROOT.glob("*.md"), *(ROOT / "man").glob("*"), *(ROOT / "etc").glob("*")]


def _functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _make_targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY:(.*)$", makefile, re.MULTILINE)
    assert phony is not None
    for target in phony[1].split():
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"no rule for '{target}'"
    return set(phony[1].split())


def _packages() -> set[str]:
    """Dotted names of all packages and of the modules directly under omlxd."""
    folders = {p.parent for top in ("omlxd", "omlxctl") for p in (ROOT / top).rglob("__init__.py")}
    return {".".join(folder.relative_to(ROOT).parts) for folder in folders}


def test_no_file_is_too_long() -> None:
    """No file of the code, tests or scripts is longer than 400 lines."""
    lengths = {p: len(p.read_text(encoding="utf-8").splitlines()) for p in _code_files()}
    assert {str(p): n for p, n in lengths.items() if n > MAX_FILE_LINES} == {}


def test_no_function_is_too_long() -> None:
    """No function is longer than 70 lines."""
    long = [
        f"{path}:{node.lineno} {node.name}"
        for path in _python_files()
        for node in _functions(path)
        if (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION_LINES
    ]
    assert long == []


def test_no_module_has_a_vague_name() -> None:
    """No module or folder is named after nothing in particular."""
    assert [p for p in _code_files() if VAGUE_NAMES & {p.stem, p.parent.name}] == []


def test_every_test_says_what_it_holds() -> None:
    """Every test function has a docstring."""
    silent = [
        f"{path}:{node.lineno} {node.name}"
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in _functions(path)
        if node.name.startswith("test_") and ast.get_docstring(node) is None
    ]
    assert silent == []


@pytest.mark.parametrize("leftover", sorted(LEFTOVERS))
def test_no_leftovers(leftover: str) -> None:
    """No file holds an unfinished thought, a registry's host or a path of somebody's machine."""
    pattern = LEFTOVERS[leftover]
    found = [
        f"{path}:{number}: {line.strip()}"
        for path in [*_code_files(), *_documents()]
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if pattern.search(line)
    ]
    assert found == []


def test_the_readme_and_the_makefile_name_the_same_targets() -> None:
    """README names every make target, and no target that does not exist."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`make ([a-z]+)`|^make ([a-z]+)", readme, re.MULTILINE))
    assert {a or b for a, b in named} == _make_targets() - {"help"}


def test_make_help_names_every_target() -> None:
    """`make` without a target lists all others."""
    done = subprocess.run(
        ["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    listed = set(re.findall(r"^make ([a-z]+)", done.stdout, re.MULTILINE))
    assert listed == _make_targets() - {"help"}


def test_ci_runs_what_the_readme_tells_people_to_run() -> None:
    """The two commands of README exist, and CI runs the one that tests."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(r"^make demo\b.*\nmake test\b", readme, re.MULTILINE)
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "make test" in ci
    assert "scripts/check" in ci


def test_scripts_can_be_run() -> None:
    """Every script without a suffix is executable and says by what it is run."""
    for script in _shell_scripts():
        assert os.access(script, os.X_OK), script
        assert script.read_text(encoding="utf-8").startswith("#!/usr/bin/env bash\n"), script


def test_the_architecture_names_every_package() -> None:
    """ARCHITECTURE.md names every package, and every package it names exists."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:omlxd|omlxctl)(?:\.[a-z_]+)*)`", text))
    packages = _packages()
    assert packages - named == set()
    modules = {".".join(p.relative_to(ROOT).with_suffix("").parts) for p in _python_files()}
    assert named - packages - modules == set()


def test_the_man_page_and_the_program_name_the_same_options() -> None:
    """omlxd(8) documents every option of `omlxd --help`, and no other."""
    done = subprocess.run(
        [sys.executable, "-m", "omlxd", "--help"], capture_output=True, text=True, check=True
    )
    offered = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", done.stdout))
    page = (ROOT / "man" / "omlxd.8").read_text(encoding="utf-8").replace("\\-", "-")
    documented = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page))
    assert documented == offered


def test_the_changelog_has_this_version() -> None:
    """CHANGELOG.md has a section for the version in the code."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{omlxd.__version__}]" in text


def test_every_dependency_is_pinned_within_its_range() -> None:
    """constraints.txt pins every dependency of pyproject.toml to a version that it allows."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {
        canonicalize_name(name): version
        for name, _, version in (line.partition("==") for line in lines if "==" in line)
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    declared = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    for requirement in map(Requirement, declared):
        pinned = pins.get(canonicalize_name(requirement.name))
        assert pinned is not None, f"{requirement.name} is not pinned"
        assert requirement.specifier.contains(pinned), f"{requirement} against {pinned}"
