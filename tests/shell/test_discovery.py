"""Model folders on a real disk → cards. The weights are written by the safetensors library."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from omlxd.models.card import Discovery, ModelCard
from omlxd.models.discovery import scan

LLM = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "max_position_embeddings": 512}


def _weights(path: Path, num_bytes: int = 64) -> None:
    save_file({"w": np.zeros(num_bytes, np.uint8)}, path, {"format": "mlx"})


def _model(path: Path, config: dict[str, Any] | None = None, *, num_bytes: int = 64) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(LLM if config is None else config))
    _weights(path / "model.safetensors", num_bytes)
    return path


def _cards(folder: Path, **options: Any) -> dict[str, ModelCard]:
    found = scan([folder], options.pop("declared", {}), **options)
    assert found.problems == ()
    return dict(found.cards)


def test_a_card_tells_what_lies_in_the_folder(tmp_path: Path) -> None:
    """Kind, size of the tensors, window, architecture and the time of config.json."""
    folder = _model(tmp_path / "Llama", num_bytes=1000)
    os.utime(folder / "config.json", (1_700_000_000, 1_700_000_000))
    card = _cards(tmp_path)["Llama"]
    assert (card.kind, card.weights_bytes, card.max_context) == ("llm", 1000, 512)
    assert (card.architectures, card.created) == (("LlamaForCausalLM",), 1_700_000_000)
    assert (card.servable, card.reason, card.path) == (True, "", folder.resolve())


def test_models_lie_one_or_two_levels_deep(tmp_path: Path) -> None:
    """`name` and `org/name` are found; hidden folders, files and a third level are not."""
    for name in ("A", "org/B", "org/deep/C", ".hidden/D"):
        _model(tmp_path / name)
    (tmp_path / "notes.txt").write_text("not a model")
    (tmp_path / "empty").mkdir()
    assert list(_cards(tmp_path)) == ["A", "org/B"]


def test_the_layout_of_the_hub_cache(tmp_path: Path) -> None:
    """refs/main names the snapshot, its files are links to blobs; data sets are not ours."""
    repository = tmp_path / "models--org--Name"
    blob = _model(repository / "blobs" / "store", num_bytes=10)
    for revision in ("old", "new"):
        snapshot = repository / "snapshots" / revision
        snapshot.mkdir(parents=True)
        for name in ("config.json", "model.safetensors"):
            (snapshot / name).symlink_to(blob / name)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("new")
    (tmp_path / "datasets--org--Data").mkdir()
    card = _cards(tmp_path)["org/Name"]
    assert (card.path.name, card.weights_bytes, card.servable) == ("new", 10, True)


@pytest.mark.parametrize("ref", ["", "gone", "../../../etc"])
def test_a_hub_repository_without_its_snapshot_is_no_model(tmp_path: Path, ref: str) -> None:
    """A ref to nothing, or out of the repository, leads nowhere."""
    repository = tmp_path / "models--org--Name"
    _model(repository / "snapshots" / "abc")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(ref)
    assert _cards(tmp_path) == {}


def test_a_hub_download_that_is_still_open_says_so(tmp_path: Path) -> None:
    """A snapshot without weights, with an unfinished blob, is being downloaded."""
    snapshot = tmp_path / "models--o--N" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(LLM))
    blobs = tmp_path / "models--o--N" / "blobs"
    blobs.mkdir()
    (blobs / "f00.incomplete").touch()
    before = scan([tmp_path], {})
    assert before.cards["o/N"].reason == "the folder is still being downloaded (f00.incomplete)"
    (blobs / "f00.incomplete").unlink()
    after = scan([tmp_path], {}, previous=before)
    assert "has no model*.safetensors" in after.cards["o/N"].reason


def test_links_are_followed_and_loops_are_not(tmp_path: Path) -> None:
    """A link to a model is that model; links to themselves, parents or nothing end nowhere."""
    real = _model(tmp_path / "elsewhere" / "Real")
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "Linked").symlink_to(real)
    (folder / "self").symlink_to(folder / "self")
    (folder / "up").symlink_to(tmp_path)
    (folder / "here").symlink_to(folder)
    (folder / "dead").symlink_to(tmp_path / "nothing")
    cards = _cards(folder)
    assert [(card.names, card.path) for card in cards.values()] == [(("Linked",), real)]


def test_two_names_of_one_folder_are_one_model(tmp_path: Path) -> None:
    """A second copy could be loaded under the second name; so it is one card with both names."""
    _model(tmp_path / "B")
    (tmp_path / "A").symlink_to(tmp_path / "B")
    (card,) = _cards(tmp_path).values()
    assert (card.id, card.names) == ("B", ("B", "A"))


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"model.safetensors": None}, "has no config.json"),
        ({"config.json": "{", "model.safetensors": None}, "config.json that is not valid JSON"),
        ({"config.json": "[" * 99999, "model.safetensors": None}, "that is not valid JSON"),
        ({"config.json": "[]", "model.safetensors": None}, "config.json that is not an object"),
        ({"config.json": "{}"}, "has no model*.safetensors"),
        ({"config.json": "{}", "pytorch_model.bin": "x"}, "has no model*.safetensors"),
        ({"config.json": "{}", "adapters.safetensors": None}, "has no model*.safetensors"),
        ({"config.json": "{}", "model.safetensors": "short"}, "cut short or not a safetensors"),
        (
            {"config.json": "{}", "model.safetensors": "\x03\0\0\0\0\0\0\0{}}"},
            "the header of model.safetensors is not valid",
        ),
        (
            {
                "config.json": "{}",
                "model-00001-of-00002.safetensors": None,
                "model.safetensors.index.json": json.dumps(
                    {"weight_map": {f"w{i}": f"model-0000{i}-of-00002.safetensors" for i in (1, 2)}}
                ),
            },
            "lacks model-00002-of-00002.safetensors; finish the download",
        ),
        (
            {"config.json": "{}", "model-00001-of-00005.safetensors": None},
            "lacks model-00002-of-00005.safetensors, model-00003-of-00005.safetensors, "
            "model-00004-of-00005.safetensors and 1 more",
        ),
        (
            {
                "config.json": "{}",
                "model.safetensors": None,
                "model.safetensors.index.json": '{"weight_map": 3}',
            },
            "has a model.safetensors.index.json that cannot be read",
        ),
        (
            {"config.json": "{}", "model.safetensors": None, "tokenizer.json.part": ""},
            "is still being downloaded (tokenizer.json.part)",
        ),
        (
            {
                "config.json": "{}",
                "model.safetensors": None,
                ".cache/huggingface/download/model.safetensors.abc.incomplete": "",
            },
            "is still being downloaded (model.safetensors.abc.incomplete)",
        ),
    ],
)
def test_a_folder_that_cannot_be_served_says_why(
    tmp_path: Path, files: dict[str, str | None], reason: str
) -> None:
    """Nothing is served half; None stands for good weights."""
    for name, text in files.items():
        path = tmp_path / "M" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            _weights(path)
        else:
            path.write_text(text)
    card = _cards(tmp_path)["M"]
    assert not card.servable
    assert card.reason.startswith("the folder ")
    assert reason in card.reason


@pytest.mark.parametrize("kept", [0, 7, 8, 40, -1])
def test_weights_cut_anywhere_are_noticed(tmp_path: Path, kept: int) -> None:
    """A file that is shorter than its header says is not served, wherever it ends."""
    weights = _model(tmp_path / "M") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:kept])
    card = _cards(tmp_path)["M"]
    assert not card.servable
    assert "holds weights that are not whole" in card.reason
    assert "cut short" in card.reason


def test_code_of_the_models_own_needs_trust(tmp_path: Path) -> None:
    """`auto_map` and `model_file` are refused unless that very model is trusted."""
    _model(tmp_path / "M", {**LLM, "auto_map": {"AutoModel": "evil.M"}})
    refused = _cards(tmp_path)["M"]
    assert not refused.servable
    assert 'set trust_remote_code = true under [models."M"]' in refused.reason
    assert not _cards(tmp_path, trusted={"Other"})["M"].servable
    assert _cards(tmp_path, trusted={"M"})["M"].servable


def test_kinds_without_an_engine_are_listed_but_not_served(tmp_path: Path) -> None:
    """Other kinds are discovered and say so; `kind` in the TOML decides over the guess."""
    _model(tmp_path / "V", {**LLM, "vision_config": {"depth": 2}})
    card = _cards(tmp_path)["V"]
    assert (card.kind, card.servable, card.reason) == (
        "vlm",
        False,
        "kind vlm is not in this version",
    )
    assert _cards(tmp_path, kinds={"V": "llm"})["V"].servable


# ------------------------------------------------------------------ declared models


def test_a_declared_model_takes_its_key_as_id(tmp_path: Path) -> None:
    """By full name, by unique short name, or by path; the folder's name stays known."""
    for name in ("org/Short", "org/Full"):
        _model(tmp_path / "models" / name)
    outside = _model(tmp_path / "outside")
    declared = {"Short": None, "org/Full": None, "mine": outside}
    cards = _cards(tmp_path / "models", declared=declared)
    assert {id_: (card.names, card.declared) for id_, card in cards.items()} == {
        "Short": (("org/Short",), True),
        "mine": ((), True),
        "org/Full": (("org/Full",), True),
    }
    assert all(card.servable for card in cards.values())


def test_a_declared_model_that_is_not_there_is_listed_with_the_reason(tmp_path: Path) -> None:
    """Missing, ambiguous and doubly declared folders are unservable, one by one."""
    for name in ("a/Twin", "b/Twin", "Once"):
        _model(tmp_path / name)
    declared = {
        "Gone": None,
        "Nowhere": tmp_path / "nowhere",
        "Twin": None,
        "Once": None,
        "again": tmp_path / "Once",
    }
    cards = _cards(tmp_path, declared=declared)
    assert {id_: card.reason for id_, card in cards.items() if card.reason} == {
        "Gone": "no model folder has a model of that name",
        "Nowhere": f"there is no folder {tmp_path / 'nowhere'}",
        "Twin": "its name can mean a/Twin, b/Twin; use the full name as the key",
        "again": 'is the same folder as [models."Once"]',
    }
    assert {id_ for id_, card in cards.items() if card.servable} == {"Once", "a/Twin", "b/Twin"}


def test_a_declared_path_wins_over_a_folder_of_the_same_name(tmp_path: Path) -> None:
    """The key means the folder it names; one of that name elsewhere is not served in its place."""
    _model(tmp_path / "models" / "X", num_bytes=10)
    _model(tmp_path / "models" / "Y", num_bytes=10)
    other = _model(tmp_path / "other", num_bytes=20)
    cards = _cards(tmp_path / "models", declared={"X": other})
    assert sorted(cards) == ["X", "Y"]
    assert (cards["X"].path, cards["X"].weights_bytes) == (other.resolve(), 20)
    assert cards["X"].declared


def test_a_wrong_path_is_told_though_a_folder_has_the_name(tmp_path: Path) -> None:
    """No other folder stands in for the one that was asked for."""
    _model(tmp_path / "models" / "X")
    wrong = tmp_path / "typo"
    card = _cards(tmp_path / "models", declared={"X": wrong})["X"]
    assert (card.servable, card.reason) == (False, f"there is no folder {wrong}")


def test_a_link_keeps_its_name_when_the_folders_own_is_taken(tmp_path: Path) -> None:
    """A folder whose name a key took is still served under another name that leads to it."""
    folder = _model(tmp_path / "models" / "X")
    (tmp_path / "models" / "Z").symlink_to(folder)
    cards = _cards(tmp_path / "models", declared={"X": _model(tmp_path / "other")})
    assert sorted(cards) == ["X", "Z"]
    assert (cards["Z"].path, cards["Z"].names) == (folder.resolve(), ("Z",))


def test_a_full_name_keeps_its_folder_from_a_short_one(tmp_path: Path) -> None:
    """The key that spells the folder out wins, whatever the order of keys."""
    _model(tmp_path / "z" / "A")
    cards = _cards(tmp_path, declared={"A": None, "z/A": None})
    assert (cards["z/A"].servable, cards["A"].servable) == (True, False)


# ------------------------------------------------------------------ folders and rescans


def test_a_missing_folder_is_a_problem_and_not_the_end(tmp_path: Path) -> None:
    """Models of the other folders are found; the missing one is reported."""
    _model(tmp_path / "here" / "M")
    found = scan([tmp_path / "gone", tmp_path / "here"], {})
    assert list(found.cards) == ["M"]
    assert [(problem.path, problem.message) for problem in found.problems] == [
        (tmp_path / "gone", "there is no such folder")
    ]


def test_the_earlier_folder_wins_a_name(tmp_path: Path) -> None:
    """The same name in two model folders is served from the first, and the second is reported."""
    first, second = _model(tmp_path / "1" / "M"), _model(tmp_path / "2" / "M")
    found = scan([tmp_path / "1", tmp_path / "2"], {})
    assert found.cards["M"].path == first
    assert [problem.path for problem in found.problems] == [second]


def test_a_name_that_is_not_utf8_is_reported(tmp_path: Path) -> None:
    """Its id could not be written as JSON, so it is left out."""
    _model(tmp_path / os.fsdecode(b"M\xff"))
    found = scan([tmp_path], {})
    assert found.cards == {}
    assert "not UTF-8" in found.problems[0].message


def test_a_file_name_that_is_not_utf8_can_be_shown(tmp_path: Path) -> None:
    """A reason that names such a file is still text that JSON carries."""
    (_model(tmp_path / "M") / os.fsdecode(b"\xff.part")).touch()
    reason = _cards(tmp_path)["M"].reason
    assert reason == "the folder is still being downloaded (\\udcff.part)"
    assert reason.encode()


def test_a_rescan_reads_changed_folders_only(tmp_path: Path) -> None:
    """Unchanged folders keep their reading; another size, time or file gives a new fingerprint."""
    for name in ("A", "B"):
        _model(tmp_path / name)
    first = scan([tmp_path], {})
    again = scan([tmp_path], {}, previous=first)
    assert again == first
    assert all(again.readings[path] is first.readings[path] for path in first.readings)
    _weights(tmp_path / "B" / "model.safetensors", 128)
    changed = scan([tmp_path], {}, previous=again)
    assert changed.cards["A"] is not None
    assert changed.cards["A"].fingerprint == first.cards["A"].fingerprint
    assert changed.cards["B"].fingerprint != first.cards["B"].fingerprint
    assert changed.cards["B"].weights_bytes == 128


def test_only_what_an_engine_reads_changes_the_fingerprint(tmp_path: Path) -> None:
    """Running code of the model's own makes a bytecode cache: that must not look like new files."""
    folder = _model(tmp_path / "M")
    prints = [scan([tmp_path], {}).cards["M"].fingerprint]
    for change in ("README.md", "__pycache__/m.pyc", "chat_template.jinja"):
        (folder / change).parent.mkdir(exist_ok=True)
        (folder / change).write_text("new")
        prints.append(scan([tmp_path], {}).cards["M"].fingerprint)
    assert prints[0] == prints[1] == prints[2]
    assert prints[3] != prints[2]


def test_a_pipe_does_not_stop_the_scan(tmp_path: Path) -> None:
    """Opening a FIFO waits for ever, so only regular files are read."""
    (tmp_path / "M").mkdir()
    os.mkfifo(tmp_path / "M" / "config.json")
    assert _cards(tmp_path)["M"].reason == "the folder has no config.json"


def test_a_sentence_transformers_folder_is_an_embedding_model(tmp_path: Path) -> None:
    """The folder 1_Pooling alone tells it from a chat model."""
    (_model(tmp_path / "M") / "1_Pooling").mkdir()
    assert _cards(tmp_path)["M"].kind == "embedding"


def test_a_removed_folder_comes_back(tmp_path: Path) -> None:
    """A declared model is unservable while its folder is away and servable when it returns."""
    folder = _model(tmp_path / "M")
    seen: list[Discovery] = [scan([tmp_path], {"M": None})]
    folder.rename(tmp_path / ".away")
    seen.append(scan([tmp_path], {"M": None}, previous=seen[-1]))
    (tmp_path / ".away").rename(folder)
    seen.append(scan([tmp_path], {"M": None}, previous=seen[-1]))
    assert [found.cards["M"].servable for found in seen] == [True, False, True]


def test_settings_apply_to_an_unchanged_folder(tmp_path: Path) -> None:
    """Trust and kind are not part of the reading: a rescan after an edit takes them over."""
    _model(tmp_path / "M", {**LLM, "model_file": "m.py"})
    first = scan([tmp_path], {})
    assert not first.cards["M"].servable
    assert scan([tmp_path], {}, trusted={"M"}, previous=first).cards["M"].servable
