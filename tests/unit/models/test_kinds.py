"""Which engine a config.json asks for."""

from __future__ import annotations

from typing import Any

import pytest

from omlxd.ipc.messages import Kind
from omlxd.models import kinds


@pytest.mark.parametrize(
    ("config", "files", "folder", "kind"),
    [
        ({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}, (), "x", "llm"),
        ({}, (), "x", "llm"),
        ({"architectures": None, "model_type": None}, (), "x", "llm"),
        ({"architectures": ["BertForSequenceClassification"]}, (), "x", "reranker"),
        ({"model_type": "qwen3"}, (), "Qwen3-Reranker-0.6B", "reranker"),
        ({"model_type": "llama"}, (), "rerank-notes", "llm"),
        ({"model_type": "xlm-roberta"}, (), "x", "embedding"),
        ({"model_type": "qwen3"}, ("modules.json",), "x", "embedding"),
        ({"model_type": "qwen3"}, ("1_Pooling",), "x", "embedding"),
        ({"model_type": "glm_ocr", "vision_config": {}}, (), "x", "ocr"),
        ({"model_type": "dots-ocr"}, (), "x", "ocr"),
        ({"architectures": ["DeepseekOCRForCausalLM"], "vision_config": {}}, (), "x", "ocr"),
        ({"model_type": "qwen2_vl", "vision_config": {"depth": 2}}, (), "x", "vlm"),
    ],
)
def test_kind(config: dict[str, Any], files: tuple[str, ...], folder: str, kind: str) -> None:
    """The first rule that matches decides: reranker, embedding, ocr, vlm, else llm."""
    assert kinds.kind_of(config, file_names=frozenset(files), folder=folder) == kind


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        ({"max_position_embeddings": 32768}, 32768),
        ({"text_config": {"max_position_embeddings": 4096}}, 4096),
        ({"max_position_embeddings": 1, "text_config": {"max_position_embeddings": 2}}, 1),
        ({"n_positions": 1024}, 1024),
        ({"max_position_embeddings": "many"}, None),
        ({"max_position_embeddings": True}, None),
        ({"max_position_embeddings": 0}, None),
        ({"max_position_embeddings": 1 << 70}, None),
        ({"text_config": "none"}, None),
        ({}, None),
    ],
)
def test_max_context(config: dict[str, Any], tokens: int | None) -> None:
    """The window comes from the config, then from its text part; nonsense is no window."""
    assert kinds.max_context(config) == tokens


def test_custom_code_is_named_by_its_key() -> None:
    """`model_file` and `auto_map` ask for code of the model's own; an empty one does not."""
    assert kinds.custom_code({"model_file": "evil.py"}) == "model_file"
    assert kinds.custom_code({"auto_map": {"AutoModel": "m.M"}}) == "auto_map"
    assert kinds.custom_code({"auto_map": {}}) == ""


@pytest.mark.parametrize(
    ("kind", "config", "reason"),
    [
        ("llm", {"model_type": "anything"}, ""),
        ("embedding", {"model_type": "xlm-roberta"}, ""),
        ("embedding", {"model_type": "nomic_bert"}, "'nomic_bert' are not known; bert, "),
        ("reranker", {"model_type": "qwen3"}, ""),
        ("reranker", {"model_type": "qwen3_vl"}, "'qwen3_vl' are not known; qwen3 are"),
        (
            "reranker",
            {"model_type": "bert", "architectures": ["BertForSequenceClassification"]},
            "",
        ),
        (
            "reranker",
            {"model_type": "qwen3", "architectures": ["Qwen3ForSequenceClassification"]},
            "classifiers of type 'qwen3' are not known",
        ),
        (
            "reranker",
            {
                "model_type": "bert",
                "architectures": ["BertForSequenceClassification"],
                "id2label": {"0": "a", "1": "b"},
            },
            "2 classes",
        ),
    ],
)
def test_what_cannot_be_computed_is_told(kind: Kind, config: dict[str, Any], reason: str) -> None:
    """With the types that can, before anybody waits for a load."""
    told = kinds.unknown_architecture(
        kind,
        kinds.model_type(config),
        kinds.architectures(config),
        num_labels=kinds.num_labels(config),
    )
    assert reason in told
    assert bool(told) == bool(reason)
