"""The frames between the daemon and a worker, and the protocol-neutral request and event stream.

Pure data. A request is what every dialect is parsed into; an event is what every dialect is
rendered from. The stream of one request is: `Accepted`, then deltas, one `Finished` per choice,
and exactly one terminal event, `Completed` or `Failed` (which may also come first of all).
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from omlxd.ipc.reports import CacheDone as CacheDone
from omlxd.ipc.reports import CacheEvicted as CacheEvicted
from omlxd.ipc.reports import CacheReport as CacheReport
from omlxd.ipc.reports import RowStats as RowStats
from omlxd.ipc.reports import Stats as Stats
from omlxd.ipc.vectors import EmbedRequest, Score, ScoreRequest, Vector

PROTOCOL = 1

Kind = Literal["llm", "vlm", "ocr", "embedding", "reranker"]
FinishReason = Literal["stop", "length", "tool_calls", "aborted"]
CacheOp = Literal["clear_hot", "clear"]
ReasoningMode = Literal["separate", "inline", "omit"]


# ------------------------------------------------------------------ the neutral request


class Sampling(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the next token is drawn; None = the model's own default, then omlxd's."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[int, float] = {}


class ToolChoice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether the reply must, may or must not call tools, and of which names only ([] = any)."""

    mode: Literal["auto", "none", "required"] = "auto"
    names: list[str] = []
    parallel: bool = True  # False = at most one call


class Constraint(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the answer's text has to be (not its reasoning, not a tool call).

    `value`: a JSON schema, a regular expression, a list of strings, a Lark grammar; None for
    `json_object`. `param` is where it stands in the body, for the error that refuses it.
    """

    kind: Literal["json_object", "json_schema", "regex", "choice", "lark"]
    value: Any = None
    param: str = "response_format"


class Thinking(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """None = as the model's settings and its template have it."""

    enabled: bool | None = None
    budget_tokens: int | None = None  # reasoning is closed after so many
    effort: str | None = None  # the template's `reasoning_effort`


class GenerateRequest(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """One generation job. Either `messages` (rendered by the model's template) or `prompt`.

    A message has a `role` (system, user, assistant, tool) and a string `content`, and as it has
    need of them `reasoning_content`, `tool_calls` ({"id", "type": "function", "function": {"name",
    "arguments": JSON text}}), `tool_call_id`, `name`. A tool is {"type": "function", "function":
    {"name", "description", "parameters"}}. Ids say nothing but which result belongs to which call.
    Where there are pictures, `content` is a list of {"type": "text", "text"} and {"type": "image",
    "image": index into `images`}; in any role but the model's own, and for models that see only.
    """

    request_id: str
    model: str  # engine id, already resolved
    api: str = ""  # route it came by, e.g. "chat.completions"; for status and logs only
    messages: list[dict[str, Any]] | None = None
    images: list[bytes] = []  # encoded files as they came, one for each part, in order
    prompt: str | list[int] | None = None  # raw text or token ids (completions)
    echo: bool = False
    tools: list[dict[str, Any]] = []
    deferred_tools: list[dict[str, Any]] = []  # may be called; the conversation introduces them
    tool_choice: ToolChoice = ToolChoice()
    constraint: Constraint | None = None
    thinking: Thinking = Thinking()
    count_only: bool = False  # answered by Accepted and Completed; nothing is generated
    template_kwargs: dict[str, Any] = {}
    continue_final: bool = False  # the last message is an assistant turn to go on with
    sampling: Sampling = Sampling()
    max_tokens: int | None = None  # None = what is left of the window
    stop: list[str] = []
    n: int = 1
    top_logprobs: int | None = None  # None = no log-probabilities; 0 = the chosen token only
    ignore_eos: bool = False


# ------------------------------------------------------------------ the neutral event stream


class TokenLogprob(Struct, frozen=True, array_like=True):
    token: str
    logprob: float
    bytes_: bytes
    top: list[tuple[str, float, bytes]] = []


class Accepted(Struct, frozen=True, tag=True):
    """Tokenised, fits the window, queued. Nothing can be refused after this."""

    request_id: str
    prompt_tokens: int


class Delta(Struct, frozen=True, tag=True, omit_defaults=True):
    """Text that became visible; never half a character, never part of a stop string."""

    request_id: str
    index: int
    text: str
    tokens: int = 1  # output tokens since the last delta of this choice
    logprobs: list[TokenLogprob] | None = None


class ReasoningDelta(Struct, frozen=True, tag=True, omit_defaults=True):
    """As `Delta`, of what the model thinks before it answers; without the model's own marks."""

    request_id: str
    index: int
    text: str
    tokens: int = 1


class ToolCallBegin(Struct, frozen=True, tag=True, omit_defaults=True):
    """A call of a tool that was offered; `call` numbers the choice's calls from 0."""

    request_id: str
    index: int
    call: int
    name: str
    tokens: int = 0


class ToolCallArguments(Struct, frozen=True, tag=True, omit_defaults=True):
    """A piece of the call's arguments; all pieces together are one JSON object."""

    request_id: str
    index: int
    call: int
    text: str
    tokens: int = 0


class ToolCallEnd(Struct, frozen=True, tag=True, omit_defaults=True):
    """The call can be run, unless it was `cut`. Every call that began ends before `Finished`."""

    request_id: str
    index: int
    call: int
    cut: str = ""  # the text ended inside it, or it came out broken: all of it, as written


class Finished(Struct, frozen=True, tag=True, omit_defaults=True):
    """One choice ended; `tool_calls` if and only if at least one call was delivered."""

    request_id: str
    index: int
    reason: FinishReason
    stop_sequence: str | None = None  # the stop string that matched


class Usage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens. `cached_tokens` = `ram` + `ssd`; `computed` = prompt tokens that were run."""

    prompt_tokens: int = 0
    output_tokens: int = 0  # reasoning and tool calls included
    reasoning_tokens: int = 0
    cached_tokens: int = 0
    ram: int = 0
    ssd: int = 0
    computed: int = 0


class PrefixMatch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What of a prompt was found in the prefix cache, and why not more; for `omlxctl why`."""

    ram: int = 0  # tokens restored from blocks in RAM
    ssd: int = 0  # tokens restored from blocks on disk
    donor: str = ""  # request that stored the deepest block that was used
    diverged_at: int | None = None  # token index of the first difference to the nearest prefix
    message_index: int | None = None  # message that holds that token, where messages were sent
    excerpt: str = ""  # text around it; only if prompts may be logged
    why_not_more: str = ""  # one word or two, see omlxd.kv
    cold_skipped: str = ""  # why blocks on disk were not loaded, if they were not


class Completed(Struct, frozen=True, tag=True, omit_defaults=True):
    """Terminal: every choice finished."""

    request_id: str
    usage: Usage
    queue_ms: float = 0.0  # accepted → first scheduled
    match: PrefixMatch | None = None


class Failed(Struct, frozen=True, tag=True, omit_defaults=True):
    """Terminal: `code` is one of `omlxd.errors.BY_CODE`."""

    request_id: str
    code: str
    message: str
    param: str | None = None
    prompt_tokens: int = 0
    max_context: int = 0
    retry_after_s: float | None = None
    at_least: bool = False  # of `prompt_tokens`


ChoiceEvent = Delta | ReasoningDelta | ToolCallBegin | ToolCallArguments | ToolCallEnd | Finished
Output = Delta | ReasoningDelta | ToolCallBegin | ToolCallArguments  # has `tokens`
Event = Accepted | ChoiceEvent | Vector | Score | Completed | Failed
Request = GenerateRequest | EmbedRequest | ScoreRequest


# ------------------------------------------------------------------ daemon → worker


class LoadSettings(Struct, frozen=True, kw_only=True):
    """What only a new worker can change (reload class *drain*). Equal = nothing to do."""

    model_id: str
    path: str
    kind: Kind
    trust_remote_code: bool = False
    chat_template: str | None = None  # template text that replaces the model's own
    max_memory_bytes: int | None = None
    block_tokens: int = 64
    cold_dir: str = ""  # folder of the cold tier, absolute; "" = none
    fingerprint: str = ""  # of the model's files: other weights under one name are another load


class LiveSettings(Struct, frozen=True, kw_only=True):
    """What a running engine takes over at once (reload class *live*)."""

    max_concurrent_requests: int = 8
    max_queue: int = 256
    prefill_step_tokens: int | None = None  # upper bound; None = auto
    max_context: int | None = None  # None = the model's own window
    max_output_tokens: int | None = None
    context_scale_factor: float = 1.0
    chat_template_kwargs: dict[str, Any] = {}
    sampling: Sampling = Sampling()
    memory_share_bytes: int = 0  # weights + KV + caches; 0 = not decided yet
    hot_bytes: int = 0  # RAM this engine may keep KV blocks in; 0 = none
    cold: bool = False  # blocks may be written to and read from LoadSettings.cold_dir
    cold_min_free_bytes: int = 0  # nothing is written while the disk has less free than this
    log_prompts: bool = False  # text of prompts may be told in logs and explanations
    reasoning: ReasoningMode = "separate"  # how it is delivered


class Load(Struct, frozen=True, tag=True):
    load: LoadSettings
    live: LiveSettings


class Configure(Struct, frozen=True, tag=True):
    live: LiveSettings


class Submit(Struct, frozen=True, tag=True):
    request: Request


class Cancel(Struct, frozen=True, tag=True):
    """The client went away, or a deadline passed. Answered by nothing."""

    request_id: str


class Stop(Struct, frozen=True, tag=True):
    """Exit cleanly now; running requests were drained or given up by the daemon."""


class CacheCommand(Struct, frozen=True, tag=True):
    """`clear_hot` drops what RAM holds; `clear` the model's files too; answered by CacheDone."""

    command_id: int
    op: CacheOp


ToWorker = Load | Configure | Submit | Cancel | CacheCommand | Stop


# ------------------------------------------------------------------ worker → daemon


class Hello(Struct, frozen=True, tag=True):
    """First frame: imports are done, no model yet."""

    pid: int
    protocol: int
    versions: dict[str, str] = {}


class TokenizerReady(Struct, frozen=True, tag=True):
    """Requests can be accepted from here on, before the weights are in."""

    max_context: int


class Loaded(Struct, frozen=True, tag=True, kw_only=True):
    """The model answers. `weights_bytes` is what the arrays occupy."""

    duration_s: float
    weights_bytes: int
    max_context: int  # served window: the model's, or the smaller one asked for
    batches: bool  # False = requests run one at a time, `batch_reason` says why
    batch_reason: str = ""
    prefix_reuse: bool = False
    prefix_reuse_reason: str = ""
    kv_bytes_per_token: int = 0


class LoadFailed(Struct, frozen=True, tag=True):
    """The worker exits after this. `permanent` = loading again cannot help until files change."""

    message: str
    permanent: bool


class Events(Struct, frozen=True, tag=True):
    """All events of one engine step, in order."""

    events: list[Event]


FromWorker = (
    Hello
    | TokenizerReady
    | Loaded
    | LoadFailed
    | Events
    | Stats
    | CacheReport
    | CacheEvicted
    | CacheDone
)
