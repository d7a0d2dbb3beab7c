"""Which engine a model needs, told from its config.json and the names of its files. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omlxd.ipc.messages import Kind


BUILT_KINDS: frozenset[Kind] = frozenset({"llm", "embedding", "reranker"})

ENCODER_TYPES = frozenset(
    {
        *("albert", "bert", "camembert", "deberta", "deberta_v2", "distilbert", "electra"),
        *("gte_new", "modernbert", "mpnet", "new", "nomic_bert", "roberta", "siglip", "siglip2"),
        "xlm_roberta",
    }
)
OCR_TYPES = frozenset(
    {
        *("deepseekocr", "deepseekocr_2", "dots_ocr", "falcon_ocr", "glm_ocr", "got", "got_ocr2"),
        *("indic_ocr", "nemotron_parse", "paddleocr_vl", "unlimited_ocr"),
    }
)
YES_NO_RERANKER_TYPES = frozenset({"qwen3", "qwen3_vl"})
# What can be computed of the above; of text models the worker knows, when it loads them.
EMBEDDERS = frozenset(
    {"bert", "gemma3_text", "lfm2", "ministral3", "modernbert", "qwen3", "xlm_roberta"}
)
CLASSIFIERS = frozenset({"bert", "modernbert", "xlm_roberta"})
YES_NO_RERANKERS = frozenset({"qwen3"})
EMBEDDING_FILES = frozenset({"modules.json", "1_Pooling"})  # sentence-transformers
NESTED_CONFIGS = ("text_config", "llm_config", "language_config")
CONTEXT_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
    "max_sequence_length",
    "max_seq_len",
    "seq_length",
)

MAX_CONTEXT = 1 << 32  # more is a mistake, and no number for JSON


def kind_of(config: Mapping[str, Any], *, file_names: frozenset[str], folder: str) -> Kind:
    """The kind of engine; `folder` is the model's own folder or repository name."""
    kind_type = model_type(config)
    classes = architectures(config)
    if any(name.endswith("ForSequenceClassification") for name in classes):
        return "reranker"
    # Yes/no rerankers are plain chat models by their config; only the name tells.
    if kind_type in YES_NO_RERANKER_TYPES and "rerank" in folder.lower():
        return "reranker"
    if kind_type in ENCODER_TYPES or EMBEDDING_FILES & file_names:
        return "embedding"
    if kind_type in OCR_TYPES or any("ocr" in name.lower() for name in classes):
        return "ocr"
    return "vlm" if config.get("vision_config") else "llm"


def unknown_architecture(
    kind: Kind, type_: str, classes: tuple[str, ...], *, num_labels: int
) -> str:
    """Why a model of this kind cannot be computed; empty = it can, as far as its config tells."""
    if kind == "embedding" and type_ not in EMBEDDERS:
        return f"embedding models of type {type_!r} are not known; {_listed(EMBEDDERS)} are"
    if kind != "reranker":
        return ""
    if not any(name.endswith("ForSequenceClassification") for name in classes):
        if type_ in YES_NO_RERANKERS:
            return ""
        return f"yes/no rerankers of type {type_!r} are not known; {_listed(YES_NO_RERANKERS)} are"
    if type_ not in CLASSIFIERS:
        return f"classifiers of type {type_!r} are not known; {_listed(CLASSIFIERS)} are"
    if num_labels != 1:
        return f"it tells {num_labels} classes apart; a reranker has one output"
    return ""


def _listed(types: frozenset[str]) -> str:
    return ", ".join(sorted(types))


def num_labels(config: Mapping[str, Any]) -> int:
    """Outputs of a classifier, as transformers reads its config."""
    value, named = config.get("num_labels"), config.get("id2label")
    if isinstance(value, int):
        return value
    return len(named) if isinstance(named, dict | Mapping) and named else 1


def model_type(config: Mapping[str, Any]) -> str:
    return str(config.get("model_type") or "").lower().replace("-", "_")


def architectures(config: Mapping[str, Any]) -> tuple[str, ...]:
    names = config.get("architectures")
    return tuple(str(name) for name in names) if isinstance(names, list) else ()


def max_context(config: Mapping[str, Any]) -> int | None:
    """The window in tokens, from the config or the text part of it; None = it does not say."""
    nested = (config.get(key) for key in NESTED_CONFIGS)
    for part in (config, *nested):
        if not isinstance(part, dict | Mapping):
            continue
        for key in CONTEXT_KEYS:
            value = part.get(key)
            if isinstance(value, int) and not isinstance(value, bool) and 0 < value < MAX_CONTEXT:
                return value
    return None


def custom_code(config: Mapping[str, Any]) -> str:
    """The key that asks for Python of the model's own folder; empty = none does."""
    return next((key for key in ("model_file", "auto_map") if config.get(key)), "")
