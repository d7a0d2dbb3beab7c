"""Folders of tiny random encoders: one that embeds, and rerankers of each architecture."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, processors

from tests.support.models import VOCABULARY, byte_level_tokenizer, make_tiny, save_tokenizer

LIMIT = 96  # tokens of one input
_ENCODER: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": LIMIT,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
    "hidden_act": "gelu",
}
ENCODERS: dict[str, dict[str, Any]] = {
    "tiny-bert-embed": _ENCODER | {"model_type": "bert", "architectures": ["BertModel"]},
    "tiny-bert-reranker": _ENCODER
    | {
        "model_type": "bert",
        "architectures": ["BertForSequenceClassification"],
        "num_labels": 1,
    },
    "tiny-xlmr-reranker": _ENCODER
    | {
        "model_type": "xlm-roberta",
        "architectures": ["XLMRobertaForSequenceClassification"],
        "type_vocab_size": 1,
        "max_position_embeddings": LIMIT + 2,
        "num_labels": 1,
    },
}


def make_encoder(name: str, parent: Path, *, pooling: str = "") -> Path:
    """A model of `ENCODERS` in a folder of this name; `pooling` as in 1_Pooling/config.json."""
    import mlx.core as mx
    from mlx.utils import tree_flatten, tree_map
    from mlx_vlm.utils import get_model_and_args

    config = ENCODERS[name]
    arch, _ = get_model_and_args({**config, "model_type": config["model_type"].replace("-", "_")})
    is_classifier = "ForSequenceClassification" in config["architectures"][0]
    make = arch.SequenceClassificationModel if is_classifier else arch.Model
    kind = config["model_type"].replace("-", "_")
    model = make(arch.ModelConfig.from_dict({**config, "model_type": kind}))
    mx.random.seed(7)
    model.update(tree_map(lambda array: 0.3 * mx.random.normal(array.shape), model.parameters()))
    folder = parent / name
    folder.mkdir(parents=True)
    weights = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, {"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_tokenizer(_with_ends(byte_level_tokenizer()), folder, chat_template="")
    if pooling:
        (folder / "1_Pooling").mkdir()
        modes = {f"pooling_mode_{pooling}": True, "word_embedding_dimension": 32}
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes), encoding="utf-8")
        modules = [
            {"type": f"sentence_transformers.models.{m}"} for m in ("Transformer", "Pooling")
        ]
        (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    return folder


def make_yes_no(parent: Path) -> Path:
    """A chat model of a family whose name makes it a reranker."""
    folder = make_tiny("tiny-qwen3", parent / "scratch")
    return Path(shutil.move(folder, parent / "tiny-Qwen3-Reranker"))


def _with_ends(tokenizer: Tokenizer) -> Tokenizer:
    """With a token before and one behind each text, as encoders have."""
    tokenizer = Tokenizer.from_str(tokenizer.to_str())
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A <|im_end|>",
        pair="<|endoftext|> $A <|im_end|> $B:1 <|im_end|>:1",
        special_tokens=[("<|endoftext|>", 0), ("<|im_end|>", 2)],
    )
    return tokenizer
