"""Fixtures of the end-to-end tests: short homes, for Unix socket paths must be short."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def _short_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="omlx-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def home() -> Iterator[Path]:
    """A private folder with a short path."""
    with _short_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def shared_home() -> Iterator[Path]:
    """The same, for a daemon that all tests of a module use."""
    with _short_folder() as folder:
        yield folder
