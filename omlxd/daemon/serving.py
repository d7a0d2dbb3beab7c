"""What follows from a spec for the HTTP side and for people. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from omlxd.api.ports import ServerSettings
from omlxd.models.inputs import resolve_path
from omlxd.reconcile.phases import WITH_WORKER
from omlxd.reconcile.state import Phase
from omlxd.spec.fields import split_address
from omlxd.spec.model import Spec
from omlxd.spec.report import Change

IN_PLIST = ("server.listen", "server.shutdown_grace")  # what `omlxctl service install` reads


def server_settings(home: Path, spec: Spec, api_keys: tuple[str, ...]) -> ServerSettings:
    """`[server]` as the HTTP side uses it."""
    server = spec.server
    return ServerSettings(
        api_keys=api_keys,
        require_key_on_loopback=server.require_key_on_loopback,
        allowed_hosts=server.allowed_hosts,
        cors_origins=server.cors_origins,
        metrics=server.metrics,
        request_timeout_s=server.request_timeout,
        log_prompts=spec.logging.prompts,
        media_roots=tuple(resolve_path(home, text) for text in server.media_roots),
        allow_remote_media=server.allow_remote_media,
        listen_hosts=tuple(split_address(listen)[0] for listen in server.listen),
    )


def consequences(
    changes: Sequence[Change],
    phases: Mapping[str, Phase],
    served: Collection[str],
    *,
    held: Sequence[str] = (),
) -> list[str]:
    """One sentence for every model, listener and service that the changes touch.

    `served`: the models there are after the changes; `held`: the addresses that launchd holds.
    """
    by_model: dict[str, list[Change]] = {
        model: [] for model, phase in phases.items() if phase in WITH_WORKER and model not in served
    }
    for change in changes:
        if change.model:
            by_model.setdefault(change.model, []).append(change)
    found = [
        f"{model}: {_of_model(its, phases.get(model, 'absent'), is_served=model in served)}"
        for model, its in by_model.items()
    ]
    if any(change.reload == "rebind" for change in changes):
        found.append("listener: the new address is bound, running responses finish on the old one")
    in_plist = [change.key for change in changes if held and change.key in IN_PLIST]
    if in_plist:
        found.append(
            f"service: launchd's plist goes by {' and '.join(in_plist)} and must be reinstalled "
            "after the save: omlxctl service install"
        )
    return found


def _of_model(changes: Iterable[Change], phase: Phase, *, is_served: bool) -> str:
    if not is_served:
        return (
            "finishes what it runs, then is unloaded"
            if phase in WITH_WORKER
            else "no longer served"
        )
    if phase not in WITH_WORKER:
        return "not loaded; the change counts from its next load"
    if any(change.reload == "drain" for change in changes):
        return "finishes what it runs, then is replaced"
    return "applied to the running engine, nothing is reloaded"
