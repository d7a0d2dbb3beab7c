"""Folders → model cards. Blocking disk reads, no MLX, no tokenizer; run it off the event loop.

A model lies one or two levels below a model folder (`name` or `org/name`), or in the layout of the
hub's cache (`models--org--name`). Links are followed; one real folder is one model, however many
names lead to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from omlxd.ipc.messages import Kind
from omlxd.models.card import Discovery, ModelCard, Reading, ScanProblem
from omlxd.models.folder import is_model_folder, read_folder
from omlxd.models.kinds import BUILT_KINDS

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
    that set `kind` and `trust_remote_code`. Folders that `previous` knows unchanged are not read.
    """
    problems: list[ScanProblem] = []
    found = _found(folders, problems)
    places, missing = _places(declared, found)
    for path in found.values():
        places.setdefault(path, "")
    known = previous.readings if previous else {}
    readings = {path: read_folder(path, known.get(path)) for path in places}
    cards = dict(missing)
    for path, key in places.items():
        names = tuple(name for name, real in found.items() if real == path)
        model = key or names[0]
        cards[model] = _card(
            ModelCard(id=model, path=path, names=names, declared=bool(key)),
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


def _place(key: str, path: Path | None, found: Mapping[str, Path]) -> Path | str:
    """The real folder of a declared model, or why there is none."""
    if path is not None:
        real = path.expanduser().resolve()
        if not real.is_dir():
            return f"there is no folder {real}"
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
        root = folder.expanduser()
        try:
            entries = list(_walk(root.resolve(strict=True)))
        except OSError as error:
            message = f"cannot be scanned: {error.strerror or error}"
            problems.append(ScanProblem(root, message))
            continue
        for name, real in entries:
            first = found.setdefault(name, real)
            if first != real:
                message = f"model {name} is also in {first}, which is the one served"
                problems.append(ScanProblem(real, message))
    return found


def _walk(root: Path) -> Iterator[tuple[str, Path]]:
    for path in _folders(root, root):
        if path.name.startswith(HUB_PREFIX):
            snapshot = _snapshot(path)
            if snapshot is not None:
                yield path.name.removeprefix(HUB_PREFIX).replace("--", "/"), snapshot
        elif is_model_folder(path):
            yield path.name, path.resolve()
        else:
            for inner in _folders(path, root):
                if is_model_folder(inner):
                    yield f"{path.name}/{inner.name}", inner.resolve()


def _folders(parent: Path, root: Path) -> list[Path]:
    """Folders in `parent` by name, without hidden ones and links back to where we came from."""
    return sorted(
        path
        for path in parent.iterdir()
        if not path.name.startswith(".")
        and path.is_dir()
        and not root.is_relative_to(path.resolve())
    )


def _snapshot(repository: Path) -> Path | None:
    """The files of a repository in the hub's cache: what refs/main names, or the only snapshot."""
    snapshots = repository / "snapshots"
    if not snapshots.is_dir():
        return None
    ref = repository / "refs" / "main"
    revisions = (
        [ref.read_text().strip()] if ref.is_file() else [p.name for p in snapshots.iterdir()]
    )
    path = snapshots / Path(revisions[0]).name if len(revisions) == 1 else None
    return path.resolve() if path is not None and path.is_dir() else None
