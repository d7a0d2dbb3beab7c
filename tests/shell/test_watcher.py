"""omlxd.daemon.watcher with real files: every kind of save is noticed, reading is not."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from omlxd.daemon.files import load_sources
from omlxd.daemon.watcher import FileWatcher, ModelFolderWatcher, way_to

NEVER_S = 3600.0  # a poll that does not come: events alone must do it


class Calls:
    """Counts callbacks; each can be waited for."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[None] = asyncio.Queue()

    def __call__(self) -> None:
        self.queue.put_nowait(None)

    async def one(self) -> None:
        """The next callback, and no second one that was queued with it."""
        async with asyncio.timeout(10):
            await self.queue.get()
        assert self.queue.empty()


class ObservedWatcher(FileWatcher):
    """Tells each time it has looked at the files."""

    looks: asyncio.Queue[None]

    def _snapshot(self) -> tuple[object, ...]:
        self.looks.put_nowait(None)
        return super()._snapshot()


@asynccontextmanager
async def watching(
    home: Path, *, config: Path | None = None, poll_s: float = NEVER_S
) -> AsyncIterator[Calls]:
    calls = Calls()
    watcher = FileWatcher(home, config or home / "omlx.toml", calls, poll_s=poll_s)
    task = asyncio.create_task(watcher.run())
    try:
        async with asyncio.timeout(10):
            await watcher.armed.wait()
        yield calls
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    (folder / "omlx.d").mkdir(parents=True)
    (folder / "omlx.toml").write_text("a = 1\n")
    return folder


def save_over(path: Path, text: str) -> None:
    """As most editors save: a new file takes the name."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text)
    new.replace(path)


def link_over(path: Path, target: Path) -> None:
    """As `ln -sfn`: the link is swapped at once."""
    new = path.with_name(f".{path.name}.link")
    new.symlink_to(target)
    new.replace(path)


async def test_a_write_in_place_is_noticed(home: Path) -> None:
    """Writing into the file itself is one callback."""
    async with watching(home) as calls:
        (home / "omlx.toml").write_text("a = 2\n")
        await calls.one()


async def test_a_rename_over_the_file_is_noticed(home: Path) -> None:
    """Each save by rename is one callback."""
    async with watching(home) as calls:
        for text in ("a = 2\n", "a = 3\n"):
            save_over(home / "omlx.toml", text)
            await calls.one()


async def test_a_backup_and_a_new_file_are_one_save(home: Path) -> None:
    """vim moves the old file away and writes a new one: the gap between is not reported."""
    path = home / "omlx.toml"
    async with watching(home) as calls:
        path.rename(home / "omlx.toml~")
        path.write_text("a = 2\n")
        (home / "omlx.toml~").unlink()
        await calls.one()
        assert path.read_text() == "a = 2\n"


async def test_a_half_written_file_is_waited_for(home: Path) -> None:
    """Between two writes of one save there is no callback; after the close there is one."""
    async with watching(home) as calls:
        with (home / "omlx.toml").open("w") as file:
            file.write("a = ")
            file.flush()
            await asyncio.sleep(0.1)  # longer than a complete save settles
            assert calls.queue.empty()
            file.write("2\n")
        await calls.one()


async def test_deleting_and_permissions_are_noticed(home: Path) -> None:
    """A file that is gone, and one that others may write now, are reasons to look."""
    async with watching(home) as calls:
        (home / "omlx.toml").chmod(0o666)
        await calls.one()
        (home / "omlx.toml").unlink()
        await calls.one()


async def test_reading_and_other_files_are_no_change(home: Path) -> None:
    """Our own reads and files beside it are looked at, and are no reason to call."""
    calls = Calls()
    watcher = ObservedWatcher(home, home / "omlx.toml", calls, poll_s=0.02)
    watcher.looks = asyncio.Queue()
    task = asyncio.create_task(watcher.run())
    await watcher.armed.wait()
    load_sources(home, home / "omlx.toml")
    (home / "other.txt").write_text("x")
    (home / "omlx.d" / "note.txt").write_text("x")
    for _ in range(5):
        await asyncio.wait_for(watcher.looks.get(), 10)
    assert calls.queue.empty()
    save_over(home / "omlx.toml", "a = 2\n")
    await calls.one()
    task.cancel()


async def test_a_swapped_link_is_noticed(home: Path, tmp_path: Path) -> None:
    """omlx.toml may become a link, and point elsewhere later."""
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    first.write_text("a = 1\n")
    second.write_text("a = 2\n")
    async with watching(home) as calls:
        for target in (first, second):
            link_over(home / "omlx.toml", target)
            await calls.one()


async def test_a_changed_target_is_noticed(home: Path, tmp_path: Path) -> None:
    """The folder of the file behind the link is watched too, for both kinds of save."""
    dotfiles = tmp_path / "dotfiles"
    dotfiles.mkdir()
    (dotfiles / "real.toml").write_text("a = 1\n")
    link_over(home / "omlx.toml", dotfiles / "real.toml")
    async with watching(home) as calls:
        (dotfiles / "real.toml").write_text("a = 2\n")
        await calls.one()
        save_over(dotfiles / "real.toml", "a = 3\n")
        await calls.one()


async def test_a_swapped_middle_link_is_noticed(home: Path, tmp_path: Path) -> None:
    """omlx.toml → current/omlx.toml, and current → v1: swapping current is a change."""
    for version in ("v1", "v2"):
        (tmp_path / "all" / version).mkdir(parents=True)
        (tmp_path / "all" / version / "omlx.toml").write_text(f"a = '{version}'\n")
    (tmp_path / "all" / "current").symlink_to("v1")
    link_over(home / "omlx.toml", tmp_path / "all" / "current" / "omlx.toml")
    async with watching(home) as calls:
        link_over(tmp_path / "all" / "current", Path("v2"))
        await calls.one()
        (tmp_path / "all" / "v2" / "omlx.toml").write_text("a = 3\n")
        await calls.one()


async def test_drop_ins_are_noticed(home: Path) -> None:
    """A drop-in that comes, changes and goes is three changes."""
    path = home / "omlx.d" / "10.toml"
    async with watching(home) as calls:
        path.write_text("a = 1\n")
        await calls.one()
        save_over(path, "a = 2\n")
        await calls.one()
        path.unlink()
        await calls.one()


async def test_a_drop_in_folder_may_come_later(home: Path) -> None:
    """Made while running, and made again after it was removed, it is watched."""
    folder = home / "omlx.d"
    folder.rmdir()
    async with watching(home) as calls:
        for _ in range(2):
            folder.mkdir()
            await calls.one()
            (folder / "10.toml").write_text("a = 1\n")
            await calls.one()
            save_over(folder / "10.toml", "a = 2\n")
            await calls.one()
            shutil.rmtree(folder)
            await calls.one()


async def test_a_home_may_come_later(tmp_path: Path) -> None:
    """A home that is missing at the start is found by the poll and watched from then on."""
    home = tmp_path / "later" / "home"
    calls = Calls()
    watcher = FileWatcher(home, home / "omlx.toml", calls, poll_s=0.02)
    task = asyncio.create_task(watcher.run())
    await watcher.armed.wait()
    home.mkdir(parents=True)
    await calls.one()
    (home / "omlx.toml").write_text("a = 1\n")
    await calls.one()
    task.cancel()


async def test_a_replaced_home_is_watched_again(home: Path, tmp_path: Path) -> None:
    """Another folder under the same name is noticed by the poll, and so are saves in it."""
    async with watching(home, poll_s=0.02) as calls:
        shutil.copytree(home, tmp_path / "copy")
        os.rename(home, tmp_path / "old")
        os.rename(tmp_path / "copy", home)
        await calls.one()
        (home / "omlx.toml").write_text("a = 5\n")
        await calls.one()


async def test_other_files_are_polled(home: Path, tmp_path: Path) -> None:
    """A referenced file that is mended, rotated or removed is a change, wherever it lies."""
    key = tmp_path / "key"
    calls = Calls()
    watcher = FileWatcher(home, home / "omlx.toml", calls, others=lambda: [key], poll_s=0.01)
    task = asyncio.create_task(watcher.run())
    await watcher.armed.wait()
    key.write_text("one")
    await calls.one()
    save_over(key, "two")
    await calls.one()
    key.chmod(0o600)
    await calls.one()
    os.chmod(tmp_path, 0o755)
    await calls.one()
    key.unlink()
    await calls.one()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_poll_finds_what_events_miss(home: Path, tmp_path: Path) -> None:
    """A change behind the link of a drop-in, whose folder is not watched, is found."""
    target = tmp_path / "shared.toml"
    target.write_text("a = 1\n")
    (home / "omlx.d" / "10.toml").symlink_to(target)
    async with watching(home, poll_s=0.02) as calls:
        target.write_text("a = 2\n")
        await calls.one()


async def test_folders_that_cannot_be_watched_are_named_and_polled(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the system has no watches left, the reason is kept and saves are found by the poll."""
    calls = Calls()
    watcher = FileWatcher(home, home / "omlx.toml", calls, poll_s=0.02)

    def schedule(*_: object, **__: object) -> None:
        raise OSError(28, "inotify watch limit reached")

    monkeypatch.setattr(watcher._observer, "schedule", schedule)
    task = asyncio.create_task(watcher.run())
    await watcher.armed.wait()
    assert watcher.unwatched == {
        home: "inotify watch limit reached",
        home / "omlx.d": "inotify watch limit reached",
    }
    save_over(home / "omlx.toml", "a = 2\n")
    await calls.one()
    task.cancel()


def test_the_way_to_a_file_names_every_link(tmp_path: Path) -> None:
    """Links of files and of folders, relative and absolute, are passed in order."""
    base = tmp_path.resolve()
    (base / "v1").mkdir()
    (base / "home").mkdir()
    (base / "v1" / "c.toml").write_text("")
    (base / "current").symlink_to("v1")
    (base / "home" / "link").symlink_to("../current/c.toml")
    (base / "home" / "omlx.toml").symlink_to(base / "home" / "link")
    assert way_to(base / "home" / "omlx.toml") == [
        base / "home" / "omlx.toml",
        base / "home" / "link",
        base / "current",
        base / "v1" / "c.toml",
    ]
    (base / "loop").symlink_to("loop")
    assert len(way_to(base / "loop")) == 41


async def test_models_that_come_and_go_are_noticed(tmp_path: Path) -> None:
    """A model folder, one below an organisation, and a file in it are changes."""
    calls = Calls()
    watcher = ModelFolderWatcher(lambda: [tmp_path / "models"], calls, poll_s=0.02)
    task = asyncio.create_task(watcher.run())
    await watcher.armed.wait()
    for folder in ("models", "models/org", "models/org/model"):
        (tmp_path / folder).mkdir()
        await calls.one()
    (tmp_path / "models" / "org" / "model" / "config.json").write_text("{}")
    await calls.one()
    shutil.rmtree(tmp_path / "models" / "org")
    await asyncio.wait_for(calls.queue.get(), 10)
    task.cancel()


async def test_other_model_folders_are_no_change(tmp_path: Path) -> None:
    """When the spec names other folders, whoever changed it looks anyway."""
    for name in ("one", "two", "two/model"):
        (tmp_path / name).mkdir()
    folders, calls = [tmp_path / "one"], Calls()
    asked: asyncio.Queue[Path] = asyncio.Queue()

    def current() -> list[Path]:
        asked.put_nowait(folders[0])
        return list(folders)

    watcher = ModelFolderWatcher(current, calls, poll_s=0.02)
    task = asyncio.create_task(watcher.run())
    await watcher.armed.wait()
    folders[0] = tmp_path / "two"
    for _ in range(3):
        while await asyncio.wait_for(asked.get(), 10) != folders[0]:
            pass
    assert calls.queue.empty()
    os.mkdir(tmp_path / "two" / "other")
    await calls.one()
    task.cancel()
