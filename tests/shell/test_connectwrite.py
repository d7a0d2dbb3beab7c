"""Settings files of clients on a real disk: merged, kept, put back."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from omlxctl import exits
from omlxctl.connectclients import SettingsFile
from omlxctl.connectwrite import BACKUP, RECORD, Outcome, carry_out, prepare, undo
from omlxctl.exits import CtlError
from omlxctl.textedit import Entry

OWN = '{\n  // mine\n  "theme": "dark"\n}\n'
MERGED = '{\n  // mine\n  "theme": "dark",\n  "env": {\n    "X": "1"\n  }\n}\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a client has its settings; there is no such folder yet."""
    return tmp_path / "client" / "settings.json"


@pytest.fixture
def own(path: Path) -> Path:
    """Settings of the user's own, readable by all."""
    path.parent.mkdir()
    path.write_text(OWN)
    path.chmod(0o644)
    return path


def save(path: Path, value: str = "1", *, private: bool = False) -> Outcome:
    file = SettingsFile(path, "json", (Entry(("env", "X"), value),))
    return carry_out(prepare(file, private=private))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


def refusal(path: Path) -> CtlError:
    with pytest.raises(CtlError) as caught:
        undo((path,), "client")
    return caught.value


def test_a_new_file_is_private_and_goes_again(path: Path) -> None:
    """Where there was none, a file for its owner alone is made, and undo removes it."""
    assert save(path) == Outcome(path, "written")
    assert (mode(path), mode(path.parent)) == (0o600, 0o700)
    assert undo((path,), "client") == [Outcome(path, "removed")]
    assert names(path.parent) == set()


def test_settings_are_merged_and_put_back(own: Path) -> None:
    """What was there stays with its comments and mode; undo gives back every byte and the mode."""
    backup = own.with_name(own.name + BACKUP)
    assert save(own) == Outcome(own, "written", backup)
    assert (own.read_text(), mode(own)) == (MERGED, 0o644)
    assert (backup.read_text(), mode(backup)) == (OWN, 0o600)
    assert undo((own,), "client") == [Outcome(own, "restored")]
    assert (own.read_text(), mode(own)) == (OWN, 0o644)
    assert names(own.parent) == {own.name}


def test_the_second_write_changes_nothing(own: Path) -> None:
    """The same again is not written, and the first state stays the one that is kept."""
    save(own)
    before = own.stat()
    assert save(own).result == "unchanged"
    assert own.stat().st_ino == before.st_ino
    assert save(own, "2").result == "written"
    assert own.with_name(own.name + BACKUP).read_text() == OWN
    undo((own,), "client")
    assert own.read_text() == OWN


def test_what_was_there_already_leaves_no_trace(own: Path) -> None:
    """A file that says all of it is left alone, and there is nothing to undo."""
    own.write_text(MERGED)
    assert save(own) == Outcome(own, "unchanged")
    assert names(own.parent) == {own.name}
    assert refusal(own).exit_code == exits.NO_SUCH_OBJECT


def test_a_key_makes_the_file_private(own: Path) -> None:
    """Settings that hold a key are for the owner alone, also when only the mode is to change."""
    save(own)
    assert save(own, private=True).result == "written"
    assert mode(own) == 0o600
    assert save(own, private=True).result == "unchanged"
    undo((own,), "client")
    assert mode(own) == 0o644


def test_a_link_stays_one(own: Path, tmp_path: Path) -> None:
    """The file behind a link is written and put back, and the link is not touched."""
    link = tmp_path / "link.json"
    link.symlink_to(own)
    save(link)
    assert (link.is_symlink(), own.read_text()) == (True, MERGED)
    undo((link,), "client")
    assert (link.is_symlink(), own.read_text()) == (True, OWN)


def test_a_link_in_a_ring_is_said(tmp_path: Path) -> None:
    """A link that leads nowhere is an error that names it."""
    link = tmp_path / "link.json"
    link.symlink_to(link)
    with pytest.raises(CtlError, match=r"cannot (follow|read) .*link\.json"):
        save(link)


def test_a_change_of_the_user_is_not_undone(own: Path) -> None:
    """A file that was changed since is left alone, with what to do by hand."""
    save(own)
    own.write_text(own.read_text() + "// more\n")
    error = refusal(own)
    assert error.exit_code == exits.CONFLICT
    assert error.hint == (
        f"take out by hand what was put in: env.X\n  or take the old file, cp {own}{BACKUP} {own}, "
        f"after diff {own}{BACKUP} {own}"
    )
    assert own.read_text() == MERGED + "// more\n"
    own.write_bytes(own.with_name(own.name + BACKUP).read_bytes())
    assert undo((own,), "client") == [Outcome(own, "restored")]


def test_a_change_between_two_writes_is_not_undone(own: Path) -> None:
    """A write over somebody's change keeps it, and undo does not lose it."""
    save(own)
    own.write_text(own.read_text().replace("dark", "light"))
    save(own, "2")
    assert '"light"' in own.read_text()
    assert refusal(own).exit_code == exits.CONFLICT


def test_a_file_that_is_gone_is_not_put_back(own: Path) -> None:
    """Who removed the settings meant it."""
    save(own)
    own.unlink()
    assert refusal(own).exit_code == exits.CONFLICT


def test_a_new_file_that_was_changed_stays(path: Path) -> None:
    """What was added to a file of ours is not thrown away."""
    save(path)
    path.write_text('{"theme": "dark"}')
    assert refusal(path).hint == "take out by hand what was put in: env.X"
    path.unlink()
    assert undo((path,), "client") == [Outcome(path, "removed")]


def test_undo_is_for_all_files_or_none(own: Path, path: Path) -> None:
    """Of two files, the one that did not change is not put back either."""
    other = path.with_name("models.json")
    save(other)
    save(own)
    own.write_text("{}")
    with pytest.raises(CtlError, match=r"settings\.json was not put back"):
        undo((other, own), "client")
    assert other.exists()


@pytest.mark.parametrize("text", [b'{"env": 1}', b"{env: {}}", b"\xff"])
def test_what_cannot_be_edited_is_shown_what_to_add(own: Path, text: bytes) -> None:
    """A file that is not followed stays, and what belongs in it is printed."""
    own.write_bytes(text)
    with pytest.raises(CtlError, match=r"settings\.json was not changed: the file") as caught:
        save(own)
    assert '"X": "1"' in caught.value.hint
    assert own.read_bytes() == text
    assert names(own.parent) == {own.name}


def test_a_write_that_fails_leaves_the_file(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the last step fails the old text is there, and undo finds it as it was."""
    rename = os.replace

    def fail_on_it(source: str, target: Path) -> None:
        if target == own:
            raise OSError(28, "No space left on device")
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail_on_it)
        with pytest.raises(CtlError, match=r"cannot write .*settings\.json: .*No space left"):
            save(own)
    assert own.read_text() == OWN
    assert names(own.parent) == {own.name, own.name + BACKUP, own.name + RECORD}
    assert undo((own,), "client") == [Outcome(own, "restored")]
    assert own.read_text() == OWN


def test_a_record_that_is_lost_is_said(own: Path) -> None:
    """Without the first state, or with a record that cannot be read, nothing is put back."""
    save(own)
    record = own.with_name(own.name + RECORD)
    own.with_name(own.name + BACKUP).unlink()
    assert "has no settings.json.omlxd-backup beside it" in refusal(own).message
    record.write_bytes(b"{")
    assert "cannot be read" in refusal(own).message
    assert own.read_text() == MERGED
