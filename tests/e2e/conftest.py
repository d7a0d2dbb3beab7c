"""Fixtures of the end-to-end tests: short homes, for Unix socket paths must be short."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def home() -> Iterator[Path]:
    """A private folder with a short path."""
    folder = Path(tempfile.mkdtemp(prefix="omlx-"))
    yield folder
    shutil.rmtree(folder)
