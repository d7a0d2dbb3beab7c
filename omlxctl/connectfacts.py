"""What a client must be told: address, key, model and its true limits. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from omlxctl import exits
from omlxctl.chatstream import address
from omlxctl.exits import CtlError
from omlxd.control.lookup import find_model
from omlxd.control.wire import ModelStatus
from omlxd.errors import ModelNotFound
from omlxd.spec.keys import dotted

# What clients get as an output limit where the model has none: a part of its window, since clients
# take it out of the room for the prompt.
OUTPUT_PART = 8
OUTPUT_TOKENS = 16_384
NO_KEY = "none"  # clients want to send one, also where nobody asks
CHAT_KINDS = frozenset({"llm", "vlm"})
_OTHER_KINDS = {
    "embedding": "it makes vectors",
    "reranker": "it scores texts",
    "ocr": "it reads pages",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What omlxd serves and how; told by the daemon, or by the files where it is down."""

    models: Sequence[ModelStatus]
    listen: Sequence[str]
    values: Mapping[str, Any]  # dotted key of the spec → value in force, secrets hidden

    def of(self, model: ModelStatus, key: str) -> Any:
        """A model's own value, else that of `[defaults]`."""
        own = dotted(("models", model.id, key))
        return self.values[own] if own in self.values else self.values.get(f"defaults.{key}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One model, as a client has to know it."""

    url: str  # http://host:port, without a path
    model: str  # the name to send
    context: int  # reported window: prompt and output together, in tokens
    max_output: int  # tokens of one reply
    sees_images: bool = False
    needs_key: bool = False
    key: str = NO_KEY  # "" = one is needed, and is not known here


def facts_about(served: Served, name: str | None) -> Facts:
    """`name` as the user gave it; without one, the model that is meant. Raises CtlError."""
    model = _named(served, name) if name else _meant(served)
    _refuse_unfit(model)
    window = model.max_context
    if window is None:
        raise CtlError(
            f"the window of {model.id} is not known: its config.json does not say",
            hint=f"load it (omlxctl load {model.id} --wait), or set max_context in omlx.toml",
        )
    url, is_local = _url(served.listen)
    has_keys = bool(served.values.get("server.api_keys"))
    asks_all = bool(served.values.get("server.require_key_on_loopback"))
    context = int(window * float(served.of(model, "context_scale_factor") or 1))
    return Facts(
        url=url,
        model=name if name in model.aliases else model.id,
        context=context,
        max_output=output_limit(min(window, context), served.of(model, "max_output_tokens")),
        sees_images=model.kind == "vlm",
        needs_key=has_keys and (asks_all or not is_local),
    )


def output_limit(window: int, cap: int | None) -> int:
    """Tokens of one reply that a client may count on and still have half the window to ask in."""
    wanted = cap or min(OUTPUT_TOKENS, window // OUTPUT_PART)
    return max(1, min(wanted, window // 2))


def _named(served: Served, name: str) -> ModelStatus:
    try:
        return find_model(served.models, name)
    except ModelNotFound as error:
        raise CtlError(str(error), exit_code=exits.NO_SUCH_OBJECT) from error


def _meant(served: Served) -> ModelStatus:
    """The only one that can chat, else the only pinned one, else the fallback. Raises CtlError."""
    able = [model for model in served.models if model.servable and model.kind in CHAT_KINDS]
    pinned = [model for model in able if model.pin]
    for candidates in (able, pinned):
        if len(candidates) == 1:
            return candidates[0]
    if fallback := served.values.get("server.fallback_model"):
        return _named(served, fallback)
    if not able:
        raise CtlError(
            "no model can be served to a client that chats",
            exit_code=exits.NO_SUCH_OBJECT,
            hint="omlxctl models says what there is, and why it is not served",
        )
    names = ", ".join(model.id for model in able)
    raise CtlError(
        f"which model? There are: {names}",
        exit_code=exits.USAGE,
        hint="name one with --model MODEL, pin one, or set server.fallback_model",
    )


def _refuse_unfit(model: ModelStatus) -> None:
    if model.kind not in CHAT_KINDS:
        does = _OTHER_KINDS.get(model.kind, "it does something else")
        raise CtlError(
            f"{model.id} cannot chat: it is of kind {model.kind}, {does}",
            hint="name a chat model with --model MODEL; omlxctl models shows each one's kind",
        )
    if not model.servable:
        raise CtlError(f"{model.id} is not served: {model.reason}", hint="omlxctl models lists all")


def _url(listen: Sequence[str]) -> tuple[str, bool]:
    """Where to reach the daemon from this machine, and whether that is over loopback."""
    found = [address([entry]) for entry in listen if urlsplit(f"//{entry}").port is not None]
    local = [one for one in found if _is_loopback(one[0])]
    host, port = (local or found or [address(listen)])[0]
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}", bool(local)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
