"""Fixtures shared by all tests: model folders, made once per session."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.models import TINY_LLMS, make_scripted, make_tiny

MakeScripted = Callable[[Mapping[str, Sequence[str | int]]], Path]

# The same examples in every run, however loaded the machine is.
settings.register_profile("house", deadline=None, derandomize=True)
settings.load_profile("house")

# OpenBLAS rounds differently with the batch; without it a row in a batch equals a row alone.
os.environ.pop("LD_PRELOAD", None)
os.environ["HF_HUB_OFFLINE"] = "1"

# A runner in the background hands down an ignored Ctrl-C; what tests start must not inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every model of `TINY_LLMS`."""
    folder = tmp_path_factory.mktemp("models")
    for name in TINY_LLMS:
        make_tiny(name, folder)
    return folder


@pytest.fixture(scope="session")
def scripted_model(tmp_path_factory: pytest.TempPathFactory) -> MakeScripted:
    """Make a model folder that says what the scripts given tell it."""

    def make(scripts: Mapping[str, Sequence[str | int]]) -> Path:
        return make_scripted(tmp_path_factory.mktemp("scripted") / "scripted", scripts)

    return make
