"""A Llama-architecture GGUF file → a model folder as mlx-lm loads it, weights in float32.

float32 because it is the one type that is fast on every backend, MLX's CPU build included.
The tokenizer is rebuilt from the file's own metadata: byte-level BPE with digits split.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

GROUP_SIZE = 32  # of every quantised GGUF type that MLX reads
CONTROL_TOKEN = 3  # GGUF's token type of special tokens

_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_IN_BLOCK = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}

Metadata = Mapping[str, Any]


def convert(gguf: Path, folder: Path) -> None:
    """Write config, weights and tokenizer of `gguf` into the existing `folder`."""
    loaded = mx.load(str(gguf), return_metadata=True)
    tensors, raw = cast("tuple[dict[str, mx.array], dict[str, Any]]", loaded)
    metadata: Metadata = {
        key: value.tolist() if isinstance(value, mx.array) else value for key, value in raw.items()
    }
    weights = _weights(tensors, metadata)
    mx.save_safetensors(str(folder / "model.safetensors"), weights, {"format": "mlx"})
    config = _config(metadata, tied="lm_head.weight" not in weights)
    _write_json(folder / "config.json", config)
    _tokenizer(metadata).save(str(folder / "tokenizer.json"))
    _write_json(folder / "tokenizer_config.json", _tokenizer_config(metadata))
    template = metadata["tokenizer.chat_template"]
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")


def _weights(tensors: Mapping[str, mx.array], metadata: Metadata) -> dict[str, mx.array]:
    heads = {
        "attn_q": metadata["llama.attention.head_count"],
        "attn_k": metadata["llama.attention.head_count_kv"],
    }
    weights: dict[str, mx.array] = {}
    for name in tensors:
        base, part = name.rsplit(".", 1)
        if part != "weight":  # scales and biases go with their weight
            continue
        weight = _dense(tensors, base)
        kind = base.rsplit(".", 1)[-1]
        if kind in heads:
            weight = _unpermute(weight, heads[kind])
        weights[f"{_mlx_name(base)}.weight"] = weight
    return weights


def _dense(tensors: Mapping[str, mx.array], base: str) -> mx.array:
    """One float32 matrix, from packed codes where the file has them."""
    weight = tensors[f"{base}.weight"]
    scales = tensors.get(f"{base}.scales")
    if scales is None:
        return weight.astype(mx.float32)
    columns = scales.shape[-1] * GROUP_SIZE
    return mx.dequantize(
        weight,
        scales.astype(mx.float32),
        tensors[f"{base}.biases"].astype(mx.float32),
        group_size=GROUP_SIZE,
        bits=weight.shape[-1] * 32 // columns,
    )


def _unpermute(weight: mx.array, heads: int) -> mx.array:
    """Undo GGUF's order of the rotary rows, (heads, half, 2), for MLX's (heads, 2, half)."""
    half = weight.shape[0] // heads // 2
    return weight.reshape(heads, half, 2, -1).swapaxes(1, 2).reshape(weight.shape)


def _mlx_name(base: str) -> str:
    if not base.startswith("blk."):
        return _TOP[base]
    _, layer, rest = base.split(".", 2)
    return f"model.layers.{layer}.{_IN_BLOCK[rest]}"


def _config(metadata: Metadata, *, tied: bool) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": metadata["llama.embedding_length"],
        "intermediate_size": metadata["llama.feed_forward_length"],
        "num_hidden_layers": metadata["llama.block_count"],
        "num_attention_heads": metadata["llama.attention.head_count"],
        "num_key_value_heads": metadata["llama.attention.head_count_kv"],
        "rms_norm_eps": metadata["llama.attention.layer_norm_rms_epsilon"],
        "rope_theta": metadata["llama.rope.freq_base"],
        "vocab_size": metadata["llama.vocab_size"],
        "max_position_embeddings": metadata["llama.context_length"],
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"],
        "pad_token_id": metadata["tokenizer.ggml.padding_token_id"],
        "torch_dtype": "float32",
    }


def _special_tokens(metadata: Metadata) -> list[str]:
    kinds = zip(
        metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"], strict=True
    )
    return [token for token, kind in kinds if kind == CONTROL_TOKEN]


def _tokenizer(metadata: Metadata) -> Tokenizer:
    vocab = {token: i for i, token in enumerate(metadata["tokenizer.ggml.tokens"])}
    merges = [(a, b) for a, b in (m.split(" ") for m in metadata["tokenizer.ggml.merges"])]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, fuse_unk=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    specials = _special_tokens(metadata)
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in specials])
    return tokenizer


def _tokenizer_config(metadata: Metadata) -> dict[str, Any]:
    tokens = metadata["tokenizer.ggml.tokens"]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": metadata["llama.context_length"],
        "clean_up_tokenization_spaces": False,
        "bos_token": tokens[metadata["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[metadata["tokenizer.ggml.eos_token_id"]],
        "pad_token": tokens[metadata["tokenizer.ggml.padding_token_id"]],
        "unk_token": tokens[metadata["tokenizer.ggml.unknown_token_id"]],
        "additional_special_tokens": _special_tokens(metadata),
        "chat_template": metadata["tokenizer.chat_template"],
    }


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
