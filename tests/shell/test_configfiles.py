"""Replacing omlx.toml on a real disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from omlxctl.configfiles import read_file, replace
from omlxctl.exits import CtlError


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_replacement_that_fails_leaves_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the last step fails the old text is there, and no temporary file is."""
    path = tmp_path / "omlx.toml"
    path.write_text("old")
    rename = os.replace

    def fail_on_main(source: str, target: Path) -> None:
        if target == path:
            raise OSError(28, "No space left on device")
        rename(source, target)

    monkeypatch.setattr(os, "replace", fail_on_main)
    with pytest.raises(CtlError, match=r"cannot replace .*omlx.toml: .*No space left"):
        replace(path, "new")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["omlx.toml", "omlx.toml.bak"]


def test_equal_text_is_not_written_again(tmp_path: Path) -> None:
    """Applying what is there already touches nothing, and keeps the last .bak."""
    path = tmp_path / "omlx.toml"
    path.write_text("same")
    before = path.stat()
    replace(path, "same")
    assert path.stat().st_ino == before.st_ino
    assert names(tmp_path) == ["omlx.toml"]


def test_a_file_that_is_not_text_is_replaced_and_kept(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 do not stand in the way, and go to .bak as they are."""
    path = tmp_path / "omlx.toml"
    path.write_bytes(b"\xff\r\n")
    replace(path, "new\n")
    assert path.read_bytes() == b"new\n"
    assert path.with_name("omlx.toml.bak").read_bytes() == b"\xff\r\n"


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    """A replacement in no folder names the file."""
    with pytest.raises(CtlError, match=r"cannot replace .*gone/omlx.toml"):
        replace(tmp_path / "gone" / "omlx.toml", "new")


def test_bytes_that_are_not_utf8_cannot_be_read(tmp_path: Path) -> None:
    """A configuration that is not UTF-8 is an error that names the file."""
    path = tmp_path / "omlx.toml"
    path.write_bytes(b"\xff")
    with pytest.raises(CtlError, match=r"cannot read .*omlx.toml: .*utf-8"):
        read_file(path)
