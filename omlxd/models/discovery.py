"""Folders → model cards. Blocking disk reads, no MLX, no tokenizer; run it off the event loop.

A model lies one or two levels below a model folder (`name` or `org/name`), or in the layout of the
hub's cache (`models--org--name`). Links are followed; one real folder is one model, however many
names lead to it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from omlxd.models.card import Discovery, ModelCard, Reading, ScanProblem
from omlxd.models.folder import is_model_folder, read_folder
from omlxd.models.kinds import BUILT_KINDS, unknown_architecture

if TYPE_CHECKING:
    from omlxd.ipc.messages import Kind

HUB_PREFIX = "models--"


def scan(
    folders: Sequence[Path],
    declared: Mapping[str, Path | None],
    *,
    kinds: Mapping[str, Kind] | None = None,
    trusted: Collection[str] = (),
    previous: Discovery | None = None,
) -> Discovery:
    """Every model under `folders` and every declared one, servable or with the reason why not.

    `declared` maps TOML keys to their `path`, if they set one; `kinds` and `trusted` hold the keys
    that set `kind` and `trust_remote_code`. Folders that `previous` knows unchanged are not read
    again. All paths are absolute. Nothing on disk makes it raise.
    """
    problems: list[ScanProblem] = []
    found = _found(folders, problems)
    places, missing = _places(declared, found)
    names = _names(declared, found, places)
    for path in names:
        places.setdefault(path, "")
    known = previous.readings if previous else {}
    readings = {path: read_folder(path, known.get(path)) for path in places}
    cards = dict(missing)
    for path, key in places.items():
        paths_to_it = tuple(names.get(path, ()))
        model = key or paths_to_it[0]
        cards[model] = _card(
            ModelCard(id=model, path=path, names=paths_to_it, declared=bool(key)),
            readings[path],
            kind=(kinds or {}).get(model),
            is_trusted=model in trusted,
        )
    return Discovery(cards=dict(sorted(cards.items())), problems=tuple(problems), readings=readings)


def _card(card: ModelCard, reading: Reading, *, kind: Kind | None, is_trusted: bool) -> ModelCard:
    kind = kind or reading.kind
    reason = ""
    if reading.defect:
        reason = f"the folder {reading.defect}"
    elif reading.custom_code and not is_trusted:
        reason = (
            f"its config.json asks for code of its own ({reading.custom_code}); if you trust it, "
            f'set trust_remote_code = true under [models."{card.id}"]'
        )
    elif kind not in BUILT_KINDS:
        reason = f"kind {kind} is not in this version"
    else:
        reason = unknown_architecture(
            kind, reading.model_type, reading.architectures, num_labels=reading.num_labels
        )
    return ModelCard(
        id=card.id,
        path=card.path,
        names=card.names,
        declared=card.declared,
        kind=kind,
        weights_bytes=reading.weights_bytes,
        max_context=reading.max_context,
        created=reading.created,
        servable=not reason,
        reason=reason,
        fingerprint=reading.fingerprint,
        architectures=reading.architectures,
    )


# ------------------------------------------------------------------ names of what was found


def _places(
    declared: Mapping[str, Path | None], found: Mapping[str, Path]
) -> tuple[dict[Path, str], dict[str, ModelCard]]:
    """Real folder → TOML key, and cards of the declared models that have no folder of their own."""
    places: dict[Path, str] = {}
    missing: dict[str, ModelCard] = {}
    # Full names first: a short one must not take the folder from the key that spells it out.
    for key in sorted(declared, key=lambda key: (key not in found, key)):
        place = _place(key, declared[key], found)
        if isinstance(place, Path) and place in places:
            place = f'is the same folder as [models."{places[place]}"]'
        if isinstance(place, Path):
            places[place] = key
        else:
            missing[key] = ModelCard(
                id=key, path=Path(), declared=True, servable=False, reason=place
            )
    return places, missing


def _names(
    declared: Mapping[str, Path | None], found: Mapping[str, Path], places: Mapping[Path, str]
) -> dict[Path, list[str]]:
    """Real folder → the names that lead to it. A key means its declared folder and no other."""
    folder_of = {key: path for path, key in places.items()}
    names: dict[Path, list[str]] = {}
    for name, path in found.items():
        if name not in declared or folder_of.get(name) == path:
            names.setdefault(path, []).append(name)
    return names


def _place(key: str, path: Path | None, found: Mapping[str, Path]) -> Path | str:
    """The real folder of a declared model, or why there is none."""
    if path is not None:
        if not os.path.isdir(path):  # Path.is_dir raises for some that are none
            return f"there is no folder {path}"
        real = path.resolve()
        if not _is_text(str(real)):
            return f"the folder that {path} leads to has a name that is not UTF-8; rename it"
        return (_snapshot(real) or real) if real.name.startswith(HUB_PREFIX) else real
    if key in found:
        return found[key]
    same = {name: real for name, real in found.items() if name.rpartition("/")[2] == key}
    if len(set(same.values())) > 1:
        return f"its name can mean {', '.join(same)}; use the full name as the key"
    return next(iter(same.values()), "no model folder has a model of that name")


# ------------------------------------------------------------------ the walk


def _found(folders: Sequence[Path], problems: list[ScanProblem]) -> dict[str, Path]:
    """Name under a model folder → real path; where a name is twice, the earlier folder wins."""
    found: dict[str, Path] = {}
    for folder in folders:
        if not os.path.isdir(folder):
            problems.append(ScanProblem(folder, "there is no such folder"))
            continue
        for name, real in _walk(folder.resolve(), problems):
            first = found.setdefault(name, real)
            if first != real:
                message = f"model {name} is also in {first}, which is the one served"
                problems.append(ScanProblem(real, message))
    return found


def _walk(root: Path, problems: list[ScanProblem]) -> Iterator[tuple[str, Path]]:
    for path in _folders(root, root, problems):
        if path.name.startswith(HUB_PREFIX):
            snapshot = _snapshot(path)
            if snapshot is not None:
                yield path.name.removeprefix(HUB_PREFIX).replace("--", "/"), snapshot
        elif is_model_folder(path):
            yield path.name, path.resolve()
        else:
            for inner in _folders(path, root, problems):
                if is_model_folder(inner):
                    yield f"{path.name}/{inner.name}", inner.resolve()


def _folders(parent: Path, root: Path, problems: list[ScanProblem]) -> list[Path]:
    """Folders in `parent`, without hidden ones and links back to where we came from."""
    try:
        # Links last: a new one must not rename the model it leads to.
        entries = sorted(parent.iterdir(), key=lambda path: (path.is_symlink(), path.name))
    except OSError as error:
        problems.append(ScanProblem(parent, f"cannot be listed: {error.strerror or error}"))
        return []
    folders = []
    for path in entries:
        if path.name.startswith(".") or not os.path.isdir(path):
            continue
        real = path.resolve()
        if root.is_relative_to(real):
            continue
        if not (_is_text(path.name) and _is_text(str(real))):
            problems.append(ScanProblem(path, "its name is not UTF-8, so nobody can ask for it"))
            continue
        folders.append(path)
    return folders


def _is_text(name: str) -> bool:
    """Names that are not UTF-8 on disk come as lone surrogates, which no JSON can carry."""
    return not any("\ud800" <= char <= "\udfff" for char in name)


def _snapshot(repository: Path) -> Path | None:
    """The files of a repository in the hub's cache: what refs/main names, or the only snapshot."""
    snapshots = repository / "snapshots"
    ref = repository / "refs" / "main"
    try:
        revisions = [entry.name for entry in snapshots.iterdir()]
        if ref.is_file():
            revision = ref.read_text(errors="replace").strip()
            revisions = [name for name in revisions if name == revision]
    except OSError:
        return None  # not a repository, or gone since
    return (snapshots / revisions[0]).resolve() if len(revisions) == 1 else None
