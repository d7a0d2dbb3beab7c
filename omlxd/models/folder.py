"""One model folder, read from disk: config.json, the weights' headers, an open download."""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Mapping, Set
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import msgspec

from omlxd.models import kinds
from omlxd.models.card import Reading
from omlxd.models.weights import Index, WeightsUnreadable, missing_shards, tensor_bytes

UNFINISHED = (".incomplete", ".part", ".partial", ".download", ".crdownload", ".aria2")
READ_BY_ENGINES = (".json", ".safetensors", ".jinja", ".model", ".txt", ".tiktoken", ".py")
DOWNLOAD_STATE = Path(".cache", "huggingface", "download")  # of huggingface_hub, in a local folder
INDEX = "model.safetensors.index.json"
LISTED_SHARDS = 3


class _Defect(Exception):
    """Why the folder cannot be loaded; `str()` continues the words "the folder"."""


def is_model_folder(path: Path) -> bool:
    """Whether it is meant to be a model, complete or not."""
    try:
        names = [entry.name for entry in path.iterdir()]
    except OSError:
        return False
    return any(name == "config.json" or name.endswith(".safetensors") for name in names)


def read_folder(path: Path, previous: Reading | None) -> Reading:
    """What lies there now; `previous` is given back if no file has changed since. Never raises."""
    try:
        files, folders = _entries(path)
        unfinished = _unfinished(path, files.keys() | folders)
        marks = sorted(folders & kinds.EMBEDDING_FILES) + unfinished + _open_blobs(path)
        fingerprint = _fingerprint(files, marks)
        if previous is not None and previous.fingerprint == fingerprint:
            return previous
        return _read(path, files, folders, unfinished=unfinished, fingerprint=fingerprint)
    except OSError as error:
        return Reading(fingerprint="", defect=f"cannot be read: {error.strerror or error}")


def _entries(path: Path) -> tuple[dict[str, tuple[int, int]], set[str]]:
    """Visible files with size and mtime, and folders; links are followed, dead ones skipped."""
    files, folders = {}, set()
    for entry in path.iterdir():
        if entry.name.startswith("."):
            continue
        try:
            status = entry.stat()
        except OSError:
            continue  # a dead link, or gone since: the same as never there
        if stat.S_ISREG(status.st_mode):
            files[entry.name] = (status.st_size, status.st_mtime_ns)
        elif stat.S_ISDIR(status.st_mode):
            folders.add(entry.name)
    return files, folders


def _unfinished(path: Path, names: Set[str]) -> list[str]:
    """Names that downloaders give to files they still write."""
    state = path / DOWNLOAD_STATE
    hidden = {entry.name for entry in state.iterdir()} if state.is_dir() else set()
    return sorted(name for name in names | hidden if name.endswith(UNFINISHED))


def _open_blobs(path: Path) -> list[str]:
    """Of a snapshot in the hub's cache: what is being fetched, maybe for another revision."""
    if path.parent.name != "snapshots" or not (blobs := path.parents[1] / "blobs").is_dir():
        return []
    return sorted(entry.name for entry in blobs.iterdir() if entry.name.endswith(".incomplete"))


def _fingerprint(files: Mapping[str, tuple[int, int]], marks: list[str]) -> str:
    """Of what decides how the model loads: a README or a bytecode cache is no change."""
    read = sorted((name, *facts) for name, facts in files.items() if name.endswith(READ_BY_ENGINES))
    facts = json.dumps([read, marks])
    return hashlib.blake2b(facts.encode(), digest_size=12).hexdigest()


def _read(
    path: Path,
    files: Mapping[str, tuple[int, int]],
    folders: Set[str],
    *,
    unfinished: list[str],
    fingerprint: str,
) -> Reading:
    names = frozenset(files)
    config: Mapping[str, Any] = {}
    weights_bytes, defect = 0, ""
    try:
        config = _config(path, names)
        if unfinished:
            raise _Defect(f"is still being downloaded ({unfinished[0]})")
        weights_bytes = _weights_bytes(path, names)
    except _Defect as error:
        blobs = _open_blobs(path)
        defect = f"is still being downloaded ({blobs[0]})" if blobs else str(error)
        # Names on disk may not be UTF-8; what is shown must be.
        defect = defect.encode(errors="backslashreplace").decode()
    return Reading(
        fingerprint=fingerprint,
        kind=kinds.kind_of(config, file_names=names | folders, folder=_repository(path)),
        weights_bytes=weights_bytes,
        max_context=kinds.max_context(config),
        created=files["config.json"][1] // 1_000_000_000 if "config.json" in files else 0,
        architectures=kinds.architectures(config),
        model_type=kinds.model_type(config),
        num_labels=kinds.num_labels(config),
        custom_code=kinds.custom_code(config),
        defect=defect,
    )


def _repository(path: Path) -> str:
    """The name people know it by: of the repository where the hub's cache holds a snapshot."""
    return path.parents[1].name if path.parent.name == "snapshots" else path.name


def _config(path: Path, names: frozenset[str]) -> Mapping[str, Any]:
    if "config.json" not in names:
        raise _Defect("has no config.json")
    try:
        # Not msgspec: real configs hold Infinity, which mlx-lm's json reads too.
        config = json.loads((path / "config.json").read_bytes())
    except (ValueError, RecursionError) as error:
        raise _Defect(f"has a config.json that is not valid JSON: {error}") from None
    if not isinstance(config, dict):
        raise _Defect("has a config.json that is not an object")
    return config


def _weights_bytes(path: Path, names: frozenset[str]) -> int:
    weights = sorted(name for name in names if fnmatch(name, "model*.safetensors"))
    index = _index(path) if INDEX in names else None
    missing = missing_shards(names, index)
    if missing:
        more = f" and {len(missing) - LISTED_SHARDS} more" if len(missing) > LISTED_SHARDS else ""
        listed = ", ".join(missing[:LISTED_SHARDS])
        raise _Defect(f"lacks {listed}{more}; finish the download or fetch it again")
    if not weights:
        raise _Defect("has no model*.safetensors; only weights in that format are loaded")
    try:
        return sum(tensor_bytes(path / name) for name in weights)
    except WeightsUnreadable as error:
        raise _Defect(f"holds weights that are not whole: {error}") from None


def _index(path: Path) -> Index:
    try:
        return msgspec.json.decode((path / INDEX).read_bytes(), type=Index)
    except msgspec.DecodeError as error:
        raise _Defect(f"has a {INDEX} that cannot be read: {error}") from None
