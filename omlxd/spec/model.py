"""The schema of omlx.toml. Every key carries its reload class and one line for man page and editor.

Reload classes: *live* (applied to running engines), *drain* (the engine finishes what it runs,
then is replaced), *rebind* (the listener). `built=False`: refused unless left at its default.

`File` is one file by itself; `Spec` is all of them together, where every model has what
`[defaults]` says for the keys it does not set. An optional key without a default is None.
"""

from __future__ import annotations

from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, field_validator, model_validator
from pydantic_core import PydanticCustomError
from pydantic_core.core_schema import ValidationInfo

from omlxd.spec.fields import (
    Amount,
    ApiKey,
    Flag,
    Folder,
    Idle,
    JsonTable,
    Limit,
    Listen,
    Name,
    Number,
    Origin,
    PositiveAmount,
    PositiveShare,
    PositiveSpan,
    Program,
    SecretTable,
    Share,
    Span,
    Steps,
    Text,
    Texts,
    Timeout,
    ToolServerName,
    WebAddress,
    Whole,
    key,
)
from omlxd.spec.merge import overlay
from omlxd.units import parse_size

EngineKind = Literal["llm", "vlm", "ocr", "embedding", "reranker"]
_INT64_MAX = (1 << 63) - 1


class Table(BaseModel):
    """A TOML table: unknown keys are errors, values are not changed after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    @field_validator("*", mode="after")
    @classmethod
    def _is_built(cls, value: Any, info: ValidationInfo) -> Any:
        """A key whose feature does not exist yet is refused, never ignored."""
        field = cls.model_fields[str(info.field_name)]
        extra = field.json_schema_extra
        if not isinstance(extra, dict) or extra["built"] or value == field.default:
            return value
        if value in cast(list[Any], extra["also"]):
            return value
        raise PydanticCustomError("not_built", "not in this version of omlxd")


class Server(Table):
    """The HTTP listener."""

    listen: Listen = key(("127.0.0.1:8000",), "rebind", "address or list of addresses to listen on")
    api_keys: tuple[ApiKey, ...] = key(
        (),
        "live",
        'keys that clients must send: literal, "env:NAME" or "file:PATH"; none = loopback only',
        secret=True,
    )
    admin_keys: tuple[ApiKey, ...] = key(
        (), "live", "keys for the admin page; API keys never open it", built=False, secret=True
    )
    require_key_on_loopback: Flag = key(False, "live", "ask local clients for a key too")
    allowed_hosts: tuple[Text, ...] = key(
        ("localhost", "127.0.0.1", "[::1]"), "live", "Host headers that are answered"
    )
    cors_origins: tuple[Origin, ...] = key(
        (), "live", "origins of web pages that may send requests"
    )
    metrics: Flag = key(False, "live", "serve /metrics on the HTTP listener too")
    shutdown_grace: Span = key(20.0, "live", "time running requests get when the daemon stops")
    fallback_model: Text = key(
        "", "live", 'model that serves unknown model names; "" = they are refused'
    )
    media_roots: tuple[Folder, ...] = key(
        (), "live", "folders that file: images may come from; none = no such images", built=False
    )
    allow_remote_media: Flag = key(
        False, "live", "fetch http and https images, from public addresses only", built=False
    )
    request_timeout: Timeout = key(None, "live", "longest time a request may take in all")


class Paths(Table):
    """Where models are."""

    models: tuple[Text, ...] = key(
        ("~/.omlx/models",), "live", "folders to look for models in, one or two levels deep"
    )


class Discovery(Table):
    """What is served beside the models that have an entry."""

    serve_undeclared: Flag = key(True, "live", "serve models that have no entry in this file")


class Memory(Table):
    """The limit on the whole process tree."""

    max_process_memory: Limit = key(
        "auto",
        "live",
        "cap on daemon and workers together; a share is of RAM; auto = RAM - 8 GB, at least half",
    )


class Cache(Table):
    """KV blocks kept for the next request."""

    block_tokens: Whole = key(64, "drain", "tokens per block", ge=16, le=1024)
    hot: Share = key(
        parse_size("20%"),
        "live",
        "RAM for blocks, all engines together; a share is of max_process_memory",
    )
    cold: Amount = key(parse_size("100GB"), "live", 'disk space for blocks; "0" turns the tier off')
    cold_dir: Folder = key(
        "cache", "drain", "folder of the blocks on disk; new, or one that omlxd made"
    )
    cold_min_free: Amount = key(parse_size("10GB"), "live", "disk space that is always left free")


class Scheduler(Table):
    """How requests share an engine."""

    max_concurrent_requests: Whole = key(
        8, "live", "requests an engine runs at the same time", ge=1, le=1024
    )
    max_queue: Whole = key(
        256, "live", "requests that may wait per engine; beyond it 503", ge=0, le=1_000_000
    )
    prefill_step_tokens: Steps = key(
        "auto",
        "live",
        "most prompt tokens per step, lowered while others decode; auto = 2048, 256 on CPU",
    )


class EngineTable(Table):
    """Worker processes."""

    spare_workers: Whole = key(1, "live", "warm workers without a model", ge=0, le=8)
    start_timeout: PositiveSpan = key(600.0, "live", "longest time a model may take to load")


class Sampling(Table):
    """Values a request may override; one that is not set is the model's own."""

    temperature: Number | None = key(None, "live", "0 = always the likeliest token", ge=0, le=2)
    top_p: Number | None = key(None, "live", "nucleus sampling", gt=0, le=1)
    top_k: Whole | None = key(
        None, "live", "only the k likeliest tokens; 0 = off", ge=0, le=1 << 20
    )
    min_p: Number | None = key(
        None, "live", "least probability, as part of the likeliest token's", ge=0, le=1
    )
    seed: Whole | None = key(None, "live", "same seed, same text", ge=0, le=_INT64_MAX)
    repetition_penalty: Number | None = key(
        None, "live", "above 1 discourages what was said before", gt=0, le=10
    )
    presence_penalty: Number | None = key(
        None, "live", "subtracted from tokens that occurred", ge=-2, le=2
    )
    frequency_penalty: Number | None = key(
        None, "live", "subtracted from tokens per occurrence", ge=-2, le=2
    )


class Defaults(Table):
    """Keys of every model that does not set them itself."""

    pin: Flag = key(False, "live", "always loaded, never evicted")
    preload: Flag = key(False, "live", "loaded at start, evictable")
    ttl: Idle = key(1800.0, "live", "idle time after the last request before it is unloaded")
    max_memory: PositiveShare | None = key(
        None, "drain", "cap on its worker's memory; a share is of RAM"
    )
    context_scale_factor: Number = key(
        1.0, "live", "reported context window = real window x this", gt=0, le=100
    )
    kind: EngineKind | None = key(
        None, "drain", "its engine; found out from its files if not set", built=False, also=("llm",)
    )
    max_context: Whole | None = key(
        None,
        "live",
        "served context window in tokens; the model's own if not set",
        ge=1,
        le=1 << 30,
    )
    max_output_tokens: Whole | None = key(
        None,
        "live",
        "most tokens of one reply; what is left of the window if not set",
        ge=1,
        le=1 << 30,
    )
    max_concurrent_requests: Whole | None = key(
        None, "live", "as in [scheduler], for this engine", ge=1, le=1024
    )
    trust_remote_code: Flag = key(False, "drain", "run Python code that comes with the model")
    chat_template: Text | None = key(
        None, "drain", 'template text or "file:PATH"; replaces the model\'s own'
    )
    chat_template_kwargs: JsonTable = key(
        {}, "live", "variables for the chat template, such as enable_thinking"
    )
    reasoning: Literal["separate", "inline", "omit"] = key(
        "separate", "live", "where a reply's reasoning goes"
    )
    mcp: Texts = key((), "live", "tool servers whose tools it is offered, unless a request says")
    sampling: Sampling = Sampling()


class ModelSpec(Defaults):
    """One model, by folder name or org/name."""

    aliases: tuple[Name, ...] = key((), "live", "further names clients may use")
    path: Text | None = key(None, "drain", "its folder, if it is not under paths.models")


class Hub(Table):
    """Downloads."""

    endpoint: Text = key("", "live", "a mirror of the hub", built=False)


class McpServer(Table):
    """One tool server: a program to start, or an address."""

    command: Program = key("", "live", "program to start: a name on PATH, or a path")
    args: tuple[Text, ...] = key((), "live", "its arguments")
    env: SecretTable = key(
        {},
        "live",
        'its variables, beside PATH, HOME and the like: literal, "env:NAME" or "file:PATH"',
        secret=True,
    )
    url: WebAddress = key("", "live", "address of a streamable HTTP server, instead of command")
    headers: SecretTable = key(
        {}, "live", 'headers it is sent: literal, "env:NAME" or "file:PATH"', secret=True
    )
    tools: tuple[Text, ...] | None = key(None, "live", "tools that may be used; all if not set")


class Mcp(Table):
    """Tool servers, whose tools omlxd can run for a model."""

    config: Text = key(
        "", "live", "path of an mcp.json in the mcpServers form; no other place is looked at"
    )
    max_rounds: Whole = key(
        8, "live", "times that one reply may call tools and go on", ge=1, le=1000
    )
    call_timeout: PositiveSpan = key(60.0, "live", "longest time a call may take")
    start_timeout: PositiveSpan = key(30.0, "live", "longest time a server may take to start")
    max_output: PositiveAmount = key(
        parse_size("64KB"), "live", "most of one result that is passed on; the rest is cut off"
    )
    ttl: Idle = key(900.0, "live", "idle time after the last call before a server is stopped")
    servers: dict[ToolServerName, McpServer] = key({}, "live", "tool servers by name")


class Logging(Table):
    """logs/server.log."""

    level: Literal["debug", "info", "warning", "error"] = key("info", "live", "least level written")
    max_size: PositiveAmount = key(parse_size("50MB"), "live", "size at which the file is rotated")
    keep: Whole = key(5, "live", "rotated files that are kept", ge=0, le=1000)
    prompts: Flag = key(
        False, "live", "write message text to the log, and show a little of it in omlxctl why"
    )


class File(Table):
    """One file by itself."""

    server: Server = Server()
    paths: Paths = Paths()
    discovery: Discovery = Discovery()
    memory: Memory = Memory()
    cache: Cache = Cache()
    scheduler: Scheduler = Scheduler()
    engine: EngineTable = EngineTable()
    defaults: Defaults = Defaults()
    models: dict[Name, ModelSpec] = {}
    hub: Hub = Hub()
    mcp: Mcp = Mcp()
    logging: Logging = Logging()


class Spec(File):
    """The desired state: every model with what it inherits from `[defaults]`."""

    @model_validator(mode="before")
    @classmethod
    def _inherit(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        defaults, models = data.get("defaults"), data.get("models")
        if not isinstance(defaults, dict) or not isinstance(models, dict):
            return data
        effective = {
            name: overlay(defaults, own) if isinstance(own, dict) else own
            for name, own in models.items()
        }
        return data | {"models": effective}

    def effective(self, name: str) -> ModelSpec:
        """What holds for a model, declared or not."""
        declared = self.models.get(name)
        if declared is not None:
            return declared
        inherited = {field: getattr(self.defaults, field) for field in Defaults.model_fields}
        return ModelSpec.model_construct(self.defaults.model_fields_set, **inherited)
