"""omlxctl connect, with and without a daemon, for a user with a home of their own."""

# ruff: noqa: ASYNC240 (small files in a temporary folder, and nothing else on the loop)

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from omlxd.control.wire import ConfigView
from omlxd.spec.report import OriginValue
from tests.fakes.fake_control import FakeControl
from tests.support.ctl import Ctl, Done

Connect = Callable[..., Coroutine[Any, Any, Done]]
ELSEWHERE = (
    *("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "OPENCLAW_HOME", "OPENCLAW_STATE_DIR"),
    *("OPENCLAW_CONFIG_PATH", "PI_CODING_AGENT_DIR"),
)
TOML = """
[server]
listen = "127.0.0.1:8123"
api_keys = ["env:TEAM_KEY", "file:key", "literal"]
[models."Alpha"]
aliases = ["main"]
max_output_tokens = 2048
context_scale_factor = 2
"""


@pytest.fixture
def user(tmp_path: Path) -> Path:
    return tmp_path / "user"


@pytest.fixture
def connect(down: Ctl, user: Path) -> Connect:
    """omlxctl connect for that user, of whom nothing else is known."""

    def run(*args: str, env: Mapping[str, str] | None = None) -> Coroutine[Any, Any, Done]:
        given = dict.fromkeys(ELSEWHERE, "") | {"HOME": str(user)}
        return down("connect", *args, env=given | dict(env or {}))

    return run


def tell(daemon: FakeControl, **values: Any) -> None:
    """The daemon's models get a window, and its configuration these values."""
    for model in daemon.current.models:
        daemon.set_model(model.id, max_context=65_536)
    daemon.view = ConfigView("x", [], [OriginValue(key, value) for key, value in values.items()])


def write_model(folder: Path, **config: Any) -> None:
    """A model folder as discovery takes it, without weights to load."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"} | config))
    header = msgspec.json.encode({"w": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_text("{}")


@pytest.fixture
def files(ctl_home: Path) -> Path:
    """A home with one declared model, and no daemon."""
    write_model(ctl_home / "models" / "Alpha", max_position_embeddings=32_768)
    (ctl_home / "omlx.toml").write_text(TOML)
    return ctl_home


# ------------------------------------------------------------------ what is printed


async def test_the_text_goes_to_stdout_and_the_rest_does_not(
    connect: Connect, user: Path, up: Ctl, fake_daemon: FakeControl
) -> None:
    """Standard output is the file itself; where it belongs and how to start it are beside it."""
    tell(fake_daemon)
    done = await connect("claude-code", "--model", "first")
    assert (done.code, json.loads(done.out)["env"]["ANTHROPIC_MODEL"]) == (0, "first")
    assert done.err == f"# {user}/.claude/settings.json\nstart it with: claude\n"
    assert not user.exists()


async def test_the_pinned_model_is_meant(
    connect: Connect, up: Ctl, fake_daemon: FakeControl
) -> None:
    """Without --model the pinned one is taken, with the window that the daemon serves."""
    tell(fake_daemon, **{"defaults.context_scale_factor": 0.5})
    document = json.loads((await connect("opencode", "--json")).out)
    facts = {key: document[key] for key in ("api_version", "client", "model", "url", "context")}
    assert facts == {
        "api_version": 1,
        "client": "opencode",
        "model": "Beta",
        "url": "http://127.0.0.1:8000",
        "context": 32_768,
    }
    assert json.loads(document["files"][0]["text"])["model"] == "omlxd/Beta"


async def test_variables_can_be_evaluated(
    connect: Connect, up: Ctl, fake_daemon: FakeControl
) -> None:
    """For a client that reads variables only, every line of stdout is an export."""
    tell(fake_daemon)
    done = await connect("copilot")
    assert all(line.startswith("export COPILOT_") for line in done.out.splitlines())
    assert "export COPILOT_MODEL=Beta" in done.out.splitlines()
    done = await connect("copilot", "--write")
    assert (done.code, 'eval "$(omlxctl connect copilot)"' in done.err) == (2, True)


async def test_an_unknown_model_is_exit_4_with_the_names(
    connect: Connect, up: Ctl, fake_daemon: FakeControl
) -> None:
    """A model that is not there is not pointed at."""
    done = await connect("codex", "--model", "Gamma")
    assert (done.code, done.out) == (4, "")
    assert "org/Alpha, Beta" in done.err


# ------------------------------------------------------------------ without a daemon


async def test_the_files_stand_in_for_the_daemon(connect: Connect, files: Path) -> None:
    """With the daemon down, omlx.toml and the model's config.json say the same."""
    document = json.loads((await connect("codex", "--json")).out)
    assert (document["url"], document["model"]) == ("http://127.0.0.1:8123", "Alpha")
    assert (document["context"], document["max_output"]) == (65_536, 2048)


async def test_drop_ins_count_without_a_daemon(connect: Connect, files: Path) -> None:
    """What omlxctl set has written is read too."""
    (files / "omlx.d").mkdir()
    (files / "omlx.d" / "90-omlxctl.toml").write_text('[models."Alpha"]\nmax_context = 16384\n')
    document = json.loads((await connect("codex", "--json")).out)
    assert document["context"] == 32_768


async def test_what_the_daemon_would_not_serve_is_not_there(connect: Connect, files: Path) -> None:
    """A model without an entry counts if it can be served, and if such models are to be."""
    write_model(files / "models" / "Beta", max_position_embeddings=16_384)
    write_model(files / "models" / "Eyes", vision_config={"depth": 1})
    done = await connect("pi", "--model", "Gamma")
    assert (done.code, done.err.endswith("models: Alpha, Beta\n")) == (4, True)
    (files / "omlx.toml").write_text(TOML + "[discovery]\nserve_undeclared = false\n")
    assert json.loads((await connect("codex", "--json")).out)["model"] == "Alpha"


async def test_an_embedding_model_is_refused(connect: Connect, files: Path) -> None:
    """A client that chats is not pointed at a model that cannot; the kind is named."""
    write_model(files / "models" / "Vectors", model_type="bert")
    (files / "omlx.toml").write_text(TOML + "[models.Vectors]\n")
    done = await connect("pi", "--model", "Vectors")
    assert (done.code, "Vectors cannot chat: it is of kind embedding" in done.err) == (1, True)


async def test_broken_files_are_exit_7(connect: Connect, files: Path) -> None:
    """Files with a problem cannot stand in for the daemon, and the problem is shown."""
    (files / "omlx.toml").write_text('[defaults]\ntll = "5m"\n')
    done = await connect("codex")
    assert (done.code, f'{files}/omlx.toml:2:1: unknown key "tll"' in done.err) == (7, True)


async def test_neither_daemon_nor_models_is_exit_3(connect: Connect) -> None:
    """With nothing to go by it is said how to start omlxd."""
    done = await connect("codex")
    assert (done.code, done.out, "start it with `omlxd`" in done.err) == (3, "", True)


# ------------------------------------------------------------------ keys


@pytest.fixture
def asking(files: Path) -> Path:
    """The same home, where local clients are asked for a key too."""
    path = files / "omlx.toml"
    path.write_text(path.read_text().replace("[server]", "[server]\nrequire_key_on_loopback=true"))
    return files


@pytest.mark.parametrize(
    ("env", "in_file", "key"),
    [
        ({"OMLX_API_KEY": "mine", "TEAM_KEY": "team"}, "filed", "mine"),
        ({"TEAM_KEY": "team"}, "filed", "team"),
        ({}, "filed\n", "filed"),
        ({}, None, "literal"),
    ],
)
async def test_the_first_key_that_can_be_read_is_given(
    connect: Connect, asking: Path, env: dict[str, str], in_file: str | None, key: str
) -> None:
    """OMLX_API_KEY, else server.api_keys: from the environment, from a file, or as written."""
    if in_file is not None:
        (asking / "key").write_text(in_file)
    done = await connect("claude-code", env=env)
    assert json.loads(done.out)["env"]["ANTHROPIC_AUTH_TOKEN"] == key


async def test_no_key_is_given_where_none_is_asked(connect: Connect, files: Path) -> None:
    """A key that local clients need not send is not spread."""
    done = await connect("claude-code", env={"OMLX_API_KEY": "mine"})
    assert "mine" not in done.out + done.err


async def test_a_key_that_is_not_known_is_not_made_up(
    connect: Connect, asking: Path, user: Path
) -> None:
    """A mark stands in its place and it is said what to do; nothing is written without it."""
    path = asking / "omlx.toml"
    path.write_text(path.read_text().replace(', "literal"', ""))
    done = await connect("opencode")
    assert (done.code, "YOUR-API-KEY" in done.out) == (0, True)
    assert "set OMLX_API_KEY to one" in done.err
    done = await connect("opencode", "--write")
    assert (done.code, user.exists()) == (1, False)
    assert "set OMLX_API_KEY to one" in done.err


async def test_a_file_with_a_key_is_private(connect: Connect, asking: Path, user: Path) -> None:
    """Settings that others could read are closed when a key goes in."""
    path = user / ".claude" / "settings.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    path.chmod(0o644)
    assert (await connect("claude-code", "--write")).code == 0
    assert '"literal"' in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


# ------------------------------------------------------------------ write and undo


async def test_write_and_undo(connect: Connect, files: Path, user: Path) -> None:
    """--write says what became of each file; --undo needs no daemon and leaves no trace."""
    settings = user / ".pi" / "agent" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"theme": "dark"}')
    done = await connect("pi", "--write")
    models = settings.with_name("models.json")
    assert done.out.splitlines() == [
        f"{models}: written",
        f"{settings}: written; what was there first is {settings}.omlxd-backup",
    ]
    again = json.loads((await connect("pi", "--write", "--json")).out)
    assert [file["result"] for file in again["files"]] == ["unchanged", "unchanged"]
    (files / "omlx.toml").unlink()
    done = await connect("pi", "--undo")
    assert done == Done(0, f"{models}: removed\n{settings}: restored\n", "")
    assert [entry.name for entry in settings.parent.iterdir()] == ["settings.json"]
    assert settings.read_text() == '{"theme": "dark"}'
    assert (await connect("pi", "--undo")).code == 4


async def test_of_two_files_none_is_written_where_one_cannot_be(
    connect: Connect, files: Path, user: Path
) -> None:
    """A client is not left with half of what it needs."""
    settings = user / ".pi" / "agent" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text("{theme: 'dark'}")
    done = await connect("pi", "--write")
    assert (done.code, done.out) == (1, "")
    assert '"defaultModel": "Alpha"' in done.err
    assert [entry.name for entry in settings.parent.iterdir()] == ["settings.json"]


async def test_two_models_share_a_provider(connect: Connect, files: Path, user: Path) -> None:
    """A second model is put beside the first, and becomes the chosen one."""
    write_model(files / "models" / "Beta", max_position_embeddings=16_384)
    for model in ("Alpha", "Beta"):
        assert (await connect("opencode", "--write", "--model", model)).code == 0
        assert (await connect("pi", "--write", "--model", model)).code == 0
    opencode = json.loads((user / ".config" / "opencode" / "opencode.json").read_text())
    assert list(opencode["provider"]["omlxd"]["models"]) == ["Alpha", "Beta"]
    assert opencode["model"] == "omlxd/Beta"
    pi = json.loads((user / ".pi" / "agent" / "models.json").read_text())
    assert [m["id"] for m in pi["providers"]["omlxd"]["models"]] == ["Alpha", "Beta"]


@pytest.mark.parametrize(
    ("client", "variable", "path"),
    [
        ("claude-code", "CLAUDE_CONFIG_DIR", "settings.json"),
        ("codex", "CODEX_HOME", "omlxd.config.toml"),
        ("opencode", "XDG_CONFIG_HOME", "opencode/opencode.json"),
        ("openclaw", "OPENCLAW_HOME", ".openclaw/openclaw.json"),
        ("openclaw", "OPENCLAW_STATE_DIR", "openclaw.json"),
        ("pi", "PI_CODING_AGENT_DIR", "models.json"),
    ],
)
async def test_a_client_that_was_moved_is_found(
    connect: Connect, files: Path, tmp_path: Path, client: str, variable: str, path: str
) -> None:
    """The variables by which clients find their files are followed."""
    document = json.loads((await connect(client, "--json", env={variable: str(tmp_path)})).out)
    assert document["files"][0]["path"] == str(tmp_path / path)


async def test_settings_with_comments_are_the_ones_that_are_used(
    connect: Connect, files: Path, user: Path
) -> None:
    """Where there is an opencode.jsonc it is edited, and its comments stay."""
    path = user / ".config" / "opencode" / "opencode.jsonc"
    path.parent.mkdir(parents=True)
    path.write_text('{\n  // mine\n  "autoupdate": false, // never\n}\n')
    assert (await connect("opencode", "--write")).code == 0
    assert path.read_text().startswith('{\n  // mine\n  "autoupdate": false, // never\n  "$schema"')


@pytest.mark.parametrize("args", [("--undo", "--write"), ("--undo", "--model", "Alpha")])
async def test_undo_goes_alone(connect: Connect, args: tuple[str, ...]) -> None:
    """What was there cannot be chosen."""
    done = await connect("pi", *args)
    assert (done.code, "--undo goes alone" in done.err) == (2, True)
