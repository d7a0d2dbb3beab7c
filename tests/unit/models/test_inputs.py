"""Paths of omlx.toml, and what a scan is told of the spec."""

from __future__ import annotations

from pathlib import Path

import pytest

from omlxd.models.inputs import model_folders, resolve_path
from omlxd.spec.model import Spec


def test_paths_of_the_spec_are_relative_to_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """~/.omlx stands for the home wherever it is; other paths are what they say."""
    home = Path("/srv/omlx")
    monkeypatch.setenv("HOME", "/users/me")
    assert model_folders(home, Spec()) == (home / "models",)
    assert resolve_path(home, "~/.omlx") == home
    assert resolve_path(home, "cache") == home / "cache"
    assert resolve_path(home, "~/models") == Path("/users/me/models")
    assert resolve_path(home, "~/.omlxx/m") == Path("/users/me/.omlxx/m")
    assert resolve_path(home, "/srv/models") == Path("/srv/models")
