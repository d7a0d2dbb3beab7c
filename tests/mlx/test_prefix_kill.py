"""A worker that is killed while it writes leaves nothing that anyone could be misled by."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.prefix_writer import prompt
from tests.support.prefixes import BLOCK, warm_from_disk

pytestmark = [pytest.mark.mlx, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-qwen3-next"])
def test_killed_at_any_moment_its_files_give_right_tokens(
    tiny_models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Three times in one folder; then a new engine goes on from what is there."""
    monkeypatch.setattr("omlxd.worker.prefix_report.INTERVAL_S", 0.02)
    folder = tmp_path / "cold"
    for requests in (1, 4, 9):
        kill_after(requests, tiny_models / name, folder)
    with warm_from_disk(tiny_models / name, folder) as truth:
        for number in range(7):
            truth.ask(f"r{number}", [*prompt(number), 5, 6, 7])
        cached = [truth.cached(f"r{number}") for number in range(7)]
    assert any(each >= BLOCK for each in cached), cached
    assert all(each % BLOCK == 0 for each in cached), cached


def kill_after(requests: int, model: Path, folder: Path) -> None:
    command = [sys.executable, "-m", "tests.support.prefix_writer", str(model), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as writer:
        assert writer.stdout is not None
        for _ in range(requests):
            assert writer.stdout.readline()
        os.kill(writer.pid, signal.SIGKILL)
    assert writer.returncode == -signal.SIGKILL
