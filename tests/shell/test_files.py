"""omlxd.daemon.files on a real disk: what is read, what is refused, what is kept."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from omlxd.daemon import files
from omlxd.daemon.files import Sources, load_sources
from omlxd.errors import SpecInvalid
from omlxd.spec.model import Spec


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    return folder


def config(home: Path, text: str = "") -> Path:
    path = home / "omlx.toml"
    path.write_text(text)
    path.chmod(0o600)
    return path


def drop_in(home: Path, name: str, text: str) -> Path:
    folder = home / "omlx.d"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / name
    path.write_text(text)
    path.chmod(0o600)
    return path


def load(home: Path) -> Sources:
    return load_sources(home, home / "omlx.toml")


def refusal(home: Path) -> str:
    (problem,) = load(home).problems
    assert load(home).reading().spec is None
    return f"{problem.file}: {problem.message} ({problem.hint})"


def test_no_home_is_an_empty_spec(tmp_path: Path) -> None:
    """Nothing on disk is the built-in state, not an error."""
    sources = load(tmp_path / "missing")
    assert (sources.main, sources.drop_ins, sources.problems) == (None, (), ())
    assert sources.reading().spec == Spec()


def test_drop_ins_are_read_in_the_order_of_their_names(home: Path) -> None:
    """Only *.toml counts; hidden files of editors do not."""
    config(home, "[models.a]\nttl = '1m'")
    drop_in(home, "90-omlxctl.toml", "[models.a]\nttl = '3m'")
    drop_in(home, "10.toml", "[models.a]\nttl = '2m'")
    for name in (".10.toml", "10.toml~", "note.txt"):
        drop_in(home, name, "broken = ")
    sources = load(home)
    assert [Path(one.file).name for one in sources.drop_ins] == ["10.toml", "90-omlxctl.toml"]
    assert sources.override == "[models.a]\nttl = '3m'"
    spec = sources.reading().spec
    assert spec is not None
    assert spec.models["a"].ttl == 180.0


def test_the_fingerprint_is_that_of_the_content(home: Path) -> None:
    """A save of the same text is no change; another text, name or refusal is."""
    path = config(home, "[server]\nmetrics = true")
    prints = [load(home).fingerprint]
    config(home, "[server]\nmetrics = true")
    assert load(home).fingerprint == prints[0]
    config(home, "[server]\nmetrics = false")
    prints.append(load(home).fingerprint)
    added = drop_in(home, "10.toml", "")
    prints.append(load(home).fingerprint)
    added.rename(added.with_name("20.toml"))
    prints.append(load(home).fingerprint)
    path.chmod(0o620)
    prints.append(load(home).fingerprint)
    assert len(set(prints)) == len(prints)


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_files_that_others_may_write_are_refused(home: Path, mode: int) -> None:
    """Group and world write bits refuse the file and say how to take them away."""
    path = config(home)
    path.chmod(mode)
    assert f"others may write {path} (chmod go-w {path})" in refusal(home)


def test_folders_that_others_may_write_are_refused(home: Path) -> None:
    """Who may write the folder may replace the file."""
    config(home)
    home.chmod(0o770)
    assert f"others may write {home} (chmod go-w {home})" in refusal(home)


def test_the_place_behind_a_link_is_checked_too(home: Path, tmp_path: Path) -> None:
    """A link to a file that others may write is refused."""
    target = tmp_path / "real.toml"
    target.write_text("")
    target.chmod(0o666)
    (home / "omlx.toml").symlink_to(target)
    assert f"others may write {target}" in refusal(home)
    target.chmod(0o644)
    assert load(home).problems == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_files_of_another_user_are_refused(home: Path) -> None:
    """A file that belongs to someone else is refused, with the owner named."""
    os.chown(config(home), 12345, -1)
    assert "belongs to another user (uid 12345)" in refusal(home)


def test_a_link_to_nothing_is_told(home: Path) -> None:
    """A dangling link is a mistake, not an empty file."""
    (home / "omlx.toml").symlink_to("nowhere.toml")
    assert "points to nowhere.toml, which does not exist" in refusal(home)


def test_what_is_no_text_file_is_told(home: Path) -> None:
    """Wrong encoding, a folder and a fifo are problems of that file; a fifo does not hang."""
    (home / "omlx.toml").write_bytes(b"a = '\xff'")
    assert "not UTF-8 (byte 5)" in refusal(home)
    (home / "omlx.toml").unlink()
    (home / "omlx.toml").mkdir()
    assert "cannot be read: Is a directory" in refusal(home)
    (home / "omlx.toml").rmdir()
    os.mkfifo(home / "omlx.toml", 0o600)
    assert "not a regular file" in refusal(home)


def test_a_drop_in_folder_that_is_none_is_told(home: Path) -> None:
    """A file called omlx.d is a problem, and omlx.toml is read nevertheless."""
    config(home, "colour = 1")
    (home / "omlx.d").write_text("")
    messages = [problem.message for problem in load(home).reading().problems]
    assert messages == ["cannot be read: Not a directory", 'unknown key "colour"']


def test_the_override_is_written_private_and_whole(home: Path) -> None:
    """The drop-in appears under its name with mode 0600 and leaves nothing else behind."""
    files.write_override(home, "[models.a]\npin = true\n")
    files.write_override(home, "[models.a]\npin = false\n")
    folder = home / "omlx.d"
    assert os.listdir(folder) == ["90-omlxctl.toml"]
    assert stat.S_IMODE((folder / "90-omlxctl.toml").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert load(home).override == "[models.a]\npin = false\n"


def test_a_write_that_fails_leaves_the_old_file(home: Path) -> None:
    """When the new file cannot take the place, the old one stays and no rest is left."""
    (home / "state").mkdir()
    (home / "state" / "x").mkdir()
    with pytest.raises(OSError, match="directory"):
        files.write_private(home / "state" / "x", b"new")
    assert os.listdir(home / "state") == ["x"]


def test_the_last_good_state_comes_back(home: Path) -> None:
    """Sources and generation are what they were, and the file is private."""
    config(home, "[models.a]\npin = true")
    drop_in(home, "10.toml", "")
    assert files.load_last_good(home) is None
    sources = load(home)
    files.save_last_good(home, sources, 7)
    found = files.load_last_good(home)
    assert found == files.LastGood(7, sources)
    assert stat.S_IMODE((home / "state" / "last-good.json").stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [b"", b"{", b'{"generation": "x"}', b"\xff"])
def test_a_broken_last_good_state_is_told(home: Path, content: bytes) -> None:
    """A copy that cannot be used names the file to delete."""
    files.write_private(home / "state" / "last-good.json", content)
    with pytest.raises(SpecInvalid, match=r"last-good\.json .* delete the file"):
        files.load_last_good(home)
