"""Files that omlx.toml points to: who may have written them, and that they are watched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from omlxd.daemon.config import ConfigStore

KEY = '[server]\napi_keys = ["file:secrets/key"]\n'
TEMPLATE = '[models.a]\nchat_template = "file:secrets/key"\n'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "secrets").mkdir(mode=0o700)
    (tmp_path / "secrets" / "key").write_text("one")
    return tmp_path


def started(home: Path, text: str) -> ConfigStore:
    (home / "omlx.toml").write_text(text)
    store = ConfigStore(home, home / "omlx.toml")
    store.start()
    return store


@pytest.mark.parametrize("text", [KEY, TEMPLATE])
@pytest.mark.parametrize("mode", [0o666, 0o620, 0o602])
def test_what_others_may_write_is_refused(home: Path, text: str, mode: int) -> None:
    """A key or a template that anybody could have put there is not taken, as omlx.toml is not."""
    key = home / "secrets" / "key"
    key.chmod(mode)
    store = started(home, text)
    (problem,) = store.problems
    assert (problem.file, problem.line) == (str(home / "omlx.toml"), 2)
    assert f"others may write {key}; chmod go-w {key}" in problem.message
    key.chmod(0o600)
    assert store.reload().accepted


def test_a_folder_that_others_may_write_is_refused(home: Path) -> None:
    """Who may write the folder may put another file there."""
    (home / "secrets").chmod(0o777)
    (problem,) = started(home, KEY).problems
    assert "others may write" in problem.message


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused(home: Path) -> None:
    """Its owner would decide who is let in."""
    os.chown(home / "secrets" / "key", 12345, -1)
    (problem,) = started(home, KEY).problems
    assert "belongs to another user (uid 12345)" in problem.message


def test_the_referenced_files_are_known(home: Path) -> None:
    """Those of the spec on disk, also one that is not accepted; what can be no path is none."""
    keys = '["k", "file:secrets/key", "file:gone", "file:~omlxd-no-such-user/x", "file:a\\u0000b"]'
    text = f'[server]\napi_keys = {keys}\n[defaults]\nchat_template = "file:secrets/key"\n'
    store = started(home, text)
    assert store.problems
    assert store.referenced == (home / "secrets" / "key", home / "gone")
    (home / "omlx.toml").write_text("[")
    store.reload()
    assert store.referenced == (home / "secrets" / "key", home / "gone")
    (home / "omlx.toml").write_text("")
    store.reload()
    assert store.referenced == ()
