"""Pictures from files: only regular ones, only below the roots, wherever links lead."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from omlxd.api import media_files
from omlxd.api.media_files import FileRefused, read_below

OUTSIDE = "is not below a folder of server.media_roots"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a file in it and one in a folder, and a secret beside the root."""
    folder = tmp_path / "root"
    (folder / "a").mkdir(parents=True)
    (folder / "x.png").write_bytes(b"x")
    (folder / "a" / "y.png").write_bytes(b"y")
    (tmp_path / "secret").write_bytes(b"s")
    (tmp_path / "rooted").mkdir()
    (tmp_path / "rooted" / "z").write_bytes(b"z")
    return folder


def read(root: Path, path: str | Path, *, limit: int = 10) -> bytes:
    return read_below([root], Path(path), limit=limit)


def refusal(root: Path, path: str | Path, *, limit: int = 10) -> str:
    with pytest.raises(FileRefused) as caught:
        read(root, path, limit=limit)
    return str(caught.value)


def test_files_below_a_root_are_read(root: Path, tmp_path: Path) -> None:
    """Directly or deeper, in any of several roots, by any way of writing the path."""
    assert read(root, root / "x.png") == b"x"
    assert read(root, root / "a" / ".." / "a" / "y.png") == b"y"
    roots = [tmp_path / "missing", tmp_path / "rooted", root]
    assert read_below(roots, root / "x.png", limit=10) == b"x"
    assert read_below(roots, tmp_path / "rooted" / "z", limit=10) == b"z"


def test_links_count_where_they_end(root: Path, tmp_path: Path) -> None:
    """One that stays below the root is followed, also where the root is a link itself."""
    (root / "l.png").symlink_to("a/y.png")
    (root / "b").symlink_to("a")
    (tmp_path / "way").symlink_to(root)
    assert read(root, root / "l.png") == b"y"
    assert read(root, root / "b" / "y.png") == b"y"
    assert read(tmp_path / "way", root / "x.png") == b"x"
    assert read(root, tmp_path / "way" / "x.png") == b"x"


def test_nothing_outside_is_read_or_told_of(root: Path, tmp_path: Path) -> None:
    """The answer is the same for what exists, what does not, and what may not be looked at."""
    (root / "l").symlink_to(tmp_path / "secret")
    (root / "up").symlink_to("..")
    for path in (
        "/etc/passwd",
        "/nonexistent/x",
        tmp_path / "secret",
        root / ".." / "secret",
        root / "l",
        root / "up" / "secret",
        tmp_path / "rooted" / "z",
        root,
        root / "a" / "..",
    ):
        assert refusal(root, path) == OUTSIDE
    assert refusal(root, "x.png") == OUTSIDE  # a path from wherever the daemon was started
    with pytest.raises(FileRefused, match=OUTSIDE):
        read_below([], root / "x.png", limit=10)


def test_only_regular_files(root: Path) -> None:
    """A pipe that nobody writes into is not waited for."""
    os.mkfifo(root / "pipe")
    assert refusal(root, root / "pipe") == "is not a regular file"
    assert refusal(root, root / "a") == "is not a regular file"
    assert refusal(root, root / "none.png") == "is not there"
    assert refusal(root, root / "x.png" / "y") == "is not there"
    (root / "circle").symlink_to("circle")
    assert refusal(root, root / "circle") == "is not there"


def test_a_socket_is_no_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot even be opened, and the reason is told."""
    monkeypatch.chdir(tmp_path)  # a socket's path has to be short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("s")
        assert refusal(tmp_path, tmp_path / "s").startswith("cannot be read: ")


def test_the_limit(root: Path) -> None:
    """A file of just the limit is read, one byte more is refused."""
    (root / "ten").write_bytes(bytes(10))
    (root / "eleven").write_bytes(bytes(11))
    assert read(root, root / "ten") == bytes(10)
    assert "more than 10 bytes" in refusal(root, root / "eleven")


def test_a_folder_that_becomes_a_link_leads_nowhere(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was looked at before it was changed is not what is opened."""
    (tmp_path / "rooted" / "y.png").write_bytes(b"other")
    real = media_files._real(root / "a" / "y.png")
    (root / "a").rename(root / "was")
    (root / "a").symlink_to(tmp_path / "rooted")
    path = root / "a" / "y.png"
    looked = {path: real}  # as it was a moment ago
    actual = media_files._real
    monkeypatch.setattr(media_files, "_real", lambda p: looked.get(p) or actual(p))
    assert refusal(root, path) == "is not there"
