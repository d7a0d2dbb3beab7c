"""The spec in force and the files it comes from, in a real home."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from omlxd.daemon.config import ConfigStore, read_files
from omlxd.errors import OmlxError, SpecInvalid
from omlxd.models.inputs import scan_inputs

GOOD = '[models.a]\nttl = "5m"\n'
BAD = '[models.a]\nttl = "soon"\n'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "omlx.d").mkdir()
    return tmp_path


def save(home: Path, text: str) -> None:
    (home / "omlx.toml").write_text(text)


def override(home: Path) -> str:
    """The drop-in without its comments."""
    lines = (home / "omlx.d" / "90-omlxctl.toml").read_text().splitlines()
    return "\n".join(line for line in lines if line and not line.startswith("#"))


def started(home: Path, text: str | None = GOOD) -> ConfigStore:
    if text is not None:
        save(home, text)
    store = ConfigStore(home, home / "omlx.toml")
    store.start()
    return store


def ttl(store: ConfigStore, model: str = "a") -> float | None:
    assert store.spec is not None
    return store.spec.models[model].ttl


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process can grow."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


# ------------------------------------------------------------------ start


def test_the_first_start(home: Path) -> None:
    """Without a file the defaults are in force, as generation 1."""
    store = started(home, None)
    assert (store.generation, store.problems) == (1, ())
    assert store.spec is not None
    assert store.spec.models == {}


def test_a_bad_file_at_the_first_start(home: Path) -> None:
    """Nothing is in force, the problem stands at its place, and a repair is generation 1."""
    store = started(home, BAD)
    assert (store.generation, store.spec, store.values_in_force()) == (0, None, [])
    assert [(p.line, p.key) for p in store.problems] == [(2, 'models."a".ttl')]
    save(home, GOOD)
    assert store.reload().accepted
    assert (store.generation, store.problems) == (1, ())


def test_start_with_the_last_good_state(home: Path) -> None:
    """A file that was broken meanwhile is a problem; what was last accepted is in force."""
    started(home)
    store = started(home, BAD)
    assert (store.generation, ttl(store)) == (1, 300)
    assert store.problems
    save(home, GOOD)
    outcome = store.reload()
    assert (outcome.accepted, store.generation, store.problems) == (False, 1, ())


def test_a_start_without_a_change_is_the_same_generation(home: Path) -> None:
    """The generation counts changes, not starts; a change made while down is one."""
    started(home)
    assert started(home).generation == 1
    store = started(home, GOOD + "pin = true\n")
    assert store.generation == 2


def test_a_last_good_state_that_cannot_be_used(home: Path) -> None:
    """It is said, and the file on disk counts."""
    started(home)
    (home / "state" / "last-good.json").write_text("{")
    save(home, GOOD)
    store = ConfigStore(home, home / "omlx.toml")
    outcome = store.start()
    assert outcome.accepted
    assert "last-good.json" in outcome.notes[0]
    assert ttl(store) == 300


def test_a_disk_that_cannot_keep_it(home: Path) -> None:
    """A spec is accepted although its copy for the next start cannot be written."""
    save(home, GOOD)
    store = ConfigStore(home, home / "omlx.toml")
    with full_disk():
        outcome = store.start()
    assert outcome.accepted
    assert "last good state could not be saved" in outcome.notes[0]


# ------------------------------------------------------------------ reload


def test_a_save_without_a_change(home: Path) -> None:
    """The same content is the same generation, however often it is looked at."""
    store = started(home)
    save(home, GOOD)
    outcomes = [store.reload(), store.reload()]
    assert [(o.accepted, o.rejected) for o in outcomes] == [(False, False)] * 2
    assert store.generation == 1


def test_a_change_says_what_it_changes(home: Path) -> None:
    """A new generation comes with its changes."""
    store = started(home)
    save(home, '[models.a]\nttl = "9m"\n')
    outcome = store.reload()
    assert [(c.key, c.reload) for c in outcome.changes] == [('models."a".ttl', "live")]
    assert (store.generation, ttl(store)) == (2, 540)


def test_a_bad_save_changes_nothing_but_the_problems(home: Path) -> None:
    """It is reported once, until it is another problem or none."""
    store = started(home)
    save(home, BAD)
    assert [store.reload().rejected, store.reload().rejected] == [True, False]
    assert (store.generation, ttl(store)) == (1, 300)
    save(home, "x = [")
    assert store.reload().rejected
    save(home, GOOD)
    assert not store.reload().rejected
    assert store.problems == ()


def test_a_file_that_vanishes(home: Path) -> None:
    """It is a problem and no order to unload everything."""
    store = started(home)
    (home / "omlx.toml").unlink()
    assert store.reload().rejected
    assert store.problems[0].message == "is gone"
    assert ttl(store) == 300
    with pytest.raises(SpecInvalid, match="is gone"):
        store.patch("a", {"pin": True}, [])
    assert not (home / "omlx.d" / "90-omlxctl.toml").exists()


def test_a_link_that_leads_to_itself(home: Path) -> None:
    """It is a problem of the file, at start and later."""
    (home / "omlx.toml").symlink_to("omlx.toml")
    store = started(home, None)
    assert "leads back to itself" in store.problems[0].message


@pytest.mark.parametrize(
    "text", ["x = " + "[" * 3000 + "]" * 3000, "x = " + "9" * 5000, "\x00", "[models.a]\npin = 1"]
)
def test_hostile_files_are_problems(home: Path, text: str) -> None:
    """Whatever is saved over a spec in force with an override, it is a problem and no crash."""
    store = started(home)
    store.patch("a", {"pin": True}, [])
    save(home, text)
    assert store.reload().rejected
    assert store.problems
    assert override(home) == "[models.a]\npin = true"


# ------------------------------------------------------------------ overrides


def test_a_patch_is_written_and_in_force(home: Path) -> None:
    """Set and unset of keys, also in tables, each a generation; the last key gone, all is gone."""
    store = started(home)
    outcome = store.patch("a", {"pin": True, "sampling.temperature": 0.5}, [])
    assert outcome.accepted
    assert store.generation == 2
    assert store.spec is not None
    assert store.spec.models["a"].sampling.temperature == 0.5
    assert store.pinned_by()["a"].endswith("90-omlxctl.toml:5")
    store.patch("a", {}, ["pin", "sampling.temperature"])
    assert override(home) == ""
    assert (store.generation, store.pinned_by()) == (3, {})


def test_a_patch_that_changes_nothing(home: Path) -> None:
    """What is said already is no new generation."""
    store = started(home)
    store.patch("a", {"pin": True}, [])
    assert not store.patch("a", {"pin": True}, []).accepted
    assert store.generation == 2


def test_a_bad_patch_writes_nothing(home: Path) -> None:
    """The problem is raised with its key, and the files are as they were."""
    store = started(home)
    with pytest.raises(SpecInvalid, match=r"nothing was changed: models.*ttl") as caught:
        store.patch("a", {"ttl": "soon"}, [])
    assert caught.value.problems[0].key == 'models."a".ttl'
    assert not (home / "omlx.d" / "90-omlxctl.toml").exists()
    assert (store.generation, store.problems) == (1, ())


def test_a_patch_over_a_broken_override(home: Path) -> None:
    """Somebody's typing error in the drop-in is reported, not overwritten."""
    store = started(home)
    (home / "omlx.d" / "90-omlxctl.toml").write_text("x = [")
    with pytest.raises(SpecInvalid, match="not valid TOML"):
        store.patch("a", {"pin": True}, [])
    assert override(home) == "x = ["


def test_a_patch_on_a_full_disk(home: Path) -> None:
    """It says that nothing was changed, and nothing was."""
    store = started(home)
    with full_disk(), pytest.raises(OmlxError, match=r"nothing was changed: omlx\.d/90-omlxctl"):
        store.patch("a", {"pin": True}, [])
    assert (store.generation, store.reload().accepted) == (1, False)


def test_the_last_writer_wins(home: Path) -> None:
    """A save of a key takes it back from omlxctl; other keys it set stay."""
    store = started(home)
    store.patch("a", {"ttl": "1m", "pin": True}, [])
    assert ttl(store) == 60
    save(home, '[models.a]\nttl = "9m"\n')
    outcome = store.reload()
    assert outcome.released == [("a", "ttl")]
    assert (ttl(store), override(home)) == (540, "[models.a]\npin = true")
    assert store.generation == 3


def test_a_bad_save_takes_nothing_back(home: Path) -> None:
    """Until the file is good again, what omlxctl set is kept; undone, it was never touched."""
    store = started(home)
    store.patch("a", {"ttl": "1m"}, [])
    save(home, BAD)
    assert store.reload().released == ()
    save(home, GOOD)
    store.reload()
    assert (ttl(store), store.generation) == (60, 2)


def test_a_patch_is_newer_than_a_save_nobody_has_seen(home: Path) -> None:
    """Set right after a save of the same key, before the watcher looked: the set counts."""
    store = started(home)
    save(home, '[models.a]\nttl = "9m"\n')
    store.patch("a", {"ttl": "1m"}, [])
    assert ttl(store) == 60
    store.reload()
    assert (ttl(store), override(home)) == (60, '[models.a]\nttl = "1m"')
    assert store.generation == 2


def test_a_release_on_a_full_disk(home: Path) -> None:
    """The save is in force but for what cannot be taken back, and that is said."""
    store = started(home)
    store.patch("a", {"ttl": "1m"}, [])
    save(home, '[models.a]\nttl = "9m"\npreload = true\n')
    with full_disk():
        outcome = store.reload()
    assert outcome.accepted
    assert outcome.released == ()
    assert "its file cannot be written" in outcome.notes[0]
    assert ttl(store) == 60
    assert store.spec is not None
    assert store.spec.models["a"].preload


# ------------------------------------------------------------------ references


def test_references_are_resolved(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys from the environment and from files, white space around them cut off; templates."""
    monkeypatch.setenv("OMLXD_TEST_KEY", " from-env ")
    (home / "key").write_text("from-file\n")
    (home / "template.jinja").write_text("{{ x }}\n")
    store = started(
        home,
        '[server]\napi_keys = ["literal", "env:OMLXD_TEST_KEY", "file:key"]\n'
        '[defaults]\nchat_template = "file:template.jinja"\n'
        '[models.a]\n[models.b]\nchat_template = "own"\n',
    )
    assert store.in_force is not None
    assert store.in_force.resolved.api_keys == ("literal", "from-env", "from-file")
    assert store.in_force.resolved.templates == {"": "{{ x }}\n", "a": "{{ x }}\n", "b": "own"}


def test_another_key_in_the_file_is_another_generation(home: Path) -> None:
    """What a reference stands for belongs to the spec, though no key of it changed."""
    (home / "key").write_text("one")
    store = started(home, '[server]\napi_keys = ["file:key"]\n')
    (home / "key").write_text("two")
    outcome = store.reload()
    assert (outcome.accepted, list(outcome.changes), store.generation) == (True, [], 2)


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("env:OMLXD_TEST_NO_SUCH", "environment has no OMLXD_TEST_NO_SUCH"),
        ("file:nothing", "cannot read nothing: No such file or directory"),
        ("file:omlx.d", "Is a directory"),
        ("file:pipe", "is not a regular file"),
        ("file:latin", "it is not UTF-8"),
        ("file:empty", "holds an empty key"),
        ("file:~omlxd-no-such-user/key", "home directory"),
        ("file:a\\u0000b", "null byte"),
        ("file:" + "x" * 300, "File name too long"),
    ],
)
def test_a_reference_to_nothing(home: Path, reference: str, why: str) -> None:
    """It is a problem at the place of the reference, whatever is wrong with it."""
    os.mkfifo(home / "pipe")
    (home / "latin").write_bytes(b"\xe9")
    (home / "empty").write_text(" \n")
    store = started(home, f'[server]\napi_keys = [\n  "fine",\n  "{reference}",\n]\n')
    (problem,) = store.problems
    assert (problem.line, problem.column, problem.key) == (4, 3, "server.api_keys[1]")
    assert why in problem.message
    assert store.spec is None


def test_a_default_template_that_is_missing_is_one_problem(home: Path) -> None:
    """It stands where the reference stands, not at every model that inherits it."""
    store = started(home, '[models.a]\n[models.b]\n[defaults]\nchat_template = "file:gone"\n')
    assert [(p.line, p.key) for p in store.problems] == [(4, "defaults.chat_template")]


def test_a_template_of_a_drop_in_is_its_problem(home: Path) -> None:
    """A problem of a reference names the file that wrote it."""
    drop_in = home / "omlx.d" / "50-mine.toml"
    drop_in.write_text('\n[models.a]\nchat_template = "file:gone"\n')
    store = started(home)
    assert [(p.file, p.line) for p in store.problems] == [(str(drop_in), 3)]
    assert read_files(home, home / "omlx.toml") == store.problems


@pytest.mark.parametrize(
    "text",
    ['[paths]\nmodels = ["~omlxd-no-such-user/m"]', '[models.a]\npath = "~omlxd-no-such-user/m"'],
)
def test_a_home_of_nobody_is_a_missing_folder(home: Path, text: str) -> None:
    """A path with an unknown user is accepted and then not found, as any other path."""
    store = started(home, text)
    assert store.spec is not None
    inputs = scan_inputs(home, store.spec)
    paths = [*inputs.folders, *(path for path in inputs.declared.values() if path)]
    assert home / "~omlxd-no-such-user/m" in paths


# ------------------------------------------------------------------ dry run


def test_a_dry_run_changes_nothing(home: Path) -> None:
    """It reads the text with the drop-ins as they are, and reports problems under its name."""
    store = started(home)
    store.patch("a", {"pin": True}, [])
    fresh, problems = store.dry_run('[models.a]\nttl = "9m"\n', "new.toml")
    assert fresh is not None
    assert (fresh.models["a"].ttl, fresh.models["a"].pin, problems) == (540, True, ())
    fresh, problems = store.dry_run(BAD, "new.toml")
    assert fresh is None
    assert [(p.file, p.line) for p in problems] == [("new.toml", 2)]
    assert (store.generation, store.problems, ttl(store)) == (2, (), 300)


def test_what_is_in_force_can_be_seen(home: Path) -> None:
    """Every value with the file that decides it."""
    store = started(home)
    store.patch("a", {"pin": True}, [])
    values = {value.key: value for value in store.values_in_force()}
    assert values['models."a".ttl'].file == str(home / "omlx.toml")
    assert values['models."a".pin'].file == store.drop_ins()[0]
    assert values["server.listen"].file == ""
