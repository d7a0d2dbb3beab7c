"""Model folders made on the spot: tiny random ones of every cache class, and one that is scripted.

All are float32 and load through mlx-lm like any other folder. The random ones share a byte-level
vocabulary of 1024 tokens trained on the standard library's own documentation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 1024
SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
# Added but not special, as real reasoning models have them: they stay in the decoded text.
MARKERS = (
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
)
EOS_TOKENS = (2, 0)

CHAT_TEMPLATE = r"""
{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{%- endif %}
    {{- '# Tools\n\n<tools>' }}
    {%- for tool in tools %}{{- '\n' + (tool | tojson) }}{%- endfor %}
    {{- '\n</tools>\n\nA call is {"name": …, "arguments": …} within <tool_call></tool_call>.' }}
    {{- '<|im_end|>\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- for m in messages %}
    {%- if m.role == 'user' or (m.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
    {%- elif m.role == 'assistant' %}
        {{- '<|im_start|>assistant\n' + (m.content or '') }}
        {%- for tool_call in m.tool_calls or [] %}
            {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '\n<tool_call>\n{"name": "' + tool_call.name + '", "arguments": ' }}
            {%- if tool_call.arguments is string %}{{- tool_call.arguments }}
            {%- else %}{{- tool_call.arguments | tojson }}{%- endif %}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif m.role == 'tool' %}
        {{- '<|im_start|>user\n<tool_response>\n' + m.content }}
        {{- '\n</tool_response><|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}"""

_BASE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": VOCABULARY,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": False,
    "eos_token_id": EOS_TOKENS[0],
    "bos_token_id": 0,
    "pad_token_id": 0,
    "torch_dtype": "float32",
}
_EXPERTS: dict[str, Any] = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "moe_intermediate_size": 64,
    "norm_topk_prob": True,
}
_CONFIGS: dict[str, dict[str, Any]] = {
    # full attention
    "tiny-llama": _BASE | {"model_type": "llama", "architectures": ["LlamaForCausalLM"]},
    "tiny-qwen3": _BASE | {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]},
    # sliding window of 32 tokens in every other layer
    "tiny-gemma3": _BASE
    | {
        "model_type": "gemma3_text",
        "architectures": ["Gemma3ForCausalLM"],
        "num_hidden_layers": 4,
        "sliding_window": 32,
        "sliding_window_pattern": 2,
        "query_pre_attn_scalar": 16,
        "rope_local_base_freq": 10000.0,
    },
    # three linear-attention layers to one of full attention
    "tiny-qwen3-next": _BASE
    | _EXPERTS
    | {
        "model_type": "qwen3_next",
        "architectures": ["Qwen3NextForCausalLM"],
        "num_hidden_layers": 4,
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "linear_conv_kernel_dim": 4,
        "shared_expert_intermediate_size": 64,
        "partial_rotary_factor": 0.5,
        "full_attention_interval": 4,
    },
    # short convolutions and attention in turn
    "tiny-lfm2": {
        key: value
        for key, value in _BASE.items()
        if key not in ("head_dim", "rms_norm_eps", "intermediate_size")
    }
    | {
        "model_type": "lfm2",
        "architectures": ["Lfm2ForCausalLM"],
        "num_hidden_layers": 4,
        "norm_eps": 1e-5,
        "conv_bias": False,
        "conv_L_cache": 3,
        "block_dim": 64,
        "block_ff_dim": 128,
        "block_multiple_of": 16,
        "block_ffn_dim_multiplier": 1.0,
        "block_auto_adjust_ff_dim": False,
        "layer_types": ["conv", "full_attention", "conv", "full_attention"],
    },
    # Mamba and attention side by side in each layer
    "tiny-falcon-h1": _BASE
    | {
        "model_type": "falcon_h1",
        "architectures": ["FalconH1ForCausalLM"],
        "mamba_d_head": 16,
        "mamba_d_ssm": 64,
        "mamba_d_state": 16,
        "mamba_n_heads": 4,
        "mamba_chunk_size": 32,
        "embedding_multiplier": 1.0,
        "lm_head_multiplier": 1.0,
    },
    "tiny-qwen3-moe": _BASE
    | _EXPERTS
    | {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"]},
}
TINY_LLMS: tuple[str, ...] = tuple(_CONFIGS)


def make_tiny(name: str, folder: Path) -> Path:
    """`folder/name`: a random model of one of `TINY_LLMS`; the same weights every time."""
    import mlx.core as mx
    from mlx.utils import tree_flatten, tree_map_with_path
    from mlx_lm.utils import _get_classes

    config = _CONFIGS[name]
    model_class, args_class = _get_classes(config)
    mx.random.seed(7)
    model = model_class(args_class.from_dict(config))

    def lively(_path: str, value: Any) -> Any:
        """Weights large enough that greedy output is not one token repeated."""
        if value.ndim < 2 or not mx.issubdtype(value.dtype, mx.floating):
            return value
        scale = 1.6 / value.shape[-1] ** 0.5 if value.ndim == 2 else 0.3
        return (mx.random.normal(value.shape) * scale).astype(value.dtype)

    model.update(tree_map_with_path(lively, model.parameters()))
    target = folder / name
    target.mkdir(parents=True, exist_ok=True)
    weights = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(target / "model.safetensors"), weights, {"format": "mlx"})
    _write_json(target / "config.json", config)
    _write_json(
        target / "generation_config.json", {"eos_token_id": list(EOS_TOKENS), "pad_token_id": 0}
    )
    save_tokenizer(byte_level_tokenizer(), target, chat_template=CHAT_TEMPLATE)
    return target


@cache
def byte_level_tokenizer() -> Tokenizer:
    texts = [text[at : at + 500] for text in topics.values() for at in range(0, len(text), 500)]
    texts = texts[:600] + ['{"name": "get_weather", "arguments": {"city": "Paris"}}'] * 20
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(MARKERS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=list(SPECIAL_TOKENS),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in MARKERS])
    assert tokenizer.get_vocab_size() == VOCABULARY
    return tokenizer


# ---------------------------------------------------------------------------- scripted

# The last message stands at the very end of the prompt: its last character chooses the script.
SCRIPT_TEMPLATE = (
    "{%- if tools %}{{- 'tools: ' }}{%- for t in tools %}{{- t | tojson }}{%- endfor %}"
    "{{- '\n' }}{%- endif %}"
    "{%- for m in messages %}{{- m.role + ': ' }}"
    "{%- for call in m.tool_calls or [] %}"
    "{%- if call.function %}{%- set call = call.function %}{%- endif %}"
    "{{- '<tool_call>' + call.name }}{{- call.arguments | tojson }}{{- '</tool_call>' }}"
    "{%- endfor %}{{- m.content or '' }}"
    "{%- if not loop.last %}{{- '\n' }}{%- endif %}{%- endfor %}"
)
_SCRIPT_MARKERS = MARKERS[:4]
_SCRIPT_SPECIAL = SPECIAL_TOKENS[:3]
# Keeps the scripted token certain at any usual temperature and under any penalty.
_SCRIPT_SCALE = 4.0
_EOS = "<|im_end|>"


def make_scripted(
    folder: Path,
    scripts: Mapping[str, Sequence[str | int]],
    *,
    template: str = SCRIPT_TEMPLATE,
    special: Sequence[str] = (),
) -> Path:
    """Make `folder` a model that says exactly what `scripts` tells it, then ends its turn.

    `scripts` maps one ASCII character to pieces. When the last character of the prompt is that
    one, the model emits the pieces, one token each. A `str` piece is a token of its own; an `int`
    is one raw byte, so that a character can be split over tokens. A token may have one successor
    only, so a piece (and a byte) may stand once over all scripts. Pieces in `special` are
    special tokens.

    How: embeddings are one-hot, the only layer adds nothing, and the output matrix is a table
    from a token to the next one.
    """
    tokenizer = _script_tokenizer(scripts, special)
    size = (tokenizer.get_vocab_size() + 63) // 64 * 64
    _save_table(folder, _successors(tokenizer, scripts), size=size, end=tokenizer.token_to_id(_EOS))
    save_tokenizer(tokenizer, folder, chat_template=template)
    return folder


@cache
def _byte_characters() -> dict[int, str]:
    """The character that stands for each byte in a byte-level vocabulary.

    Printable bytes stand for themselves; the others, in order, have characters from 256 up.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    own = {ord(character): character for character in alphabet if ord(character) < 256}
    others = (byte for byte in range(256) if byte not in own)
    return own | dict(zip(others, alphabet[len(own) :], strict=True))


def _script_tokenizer(
    scripts: Mapping[str, Sequence[str | int]], special: Sequence[str]
) -> Tokenizer:
    pieces = [p for script in scripts.values() for p in script if isinstance(p, str)]
    assert len(set(pieces)) == len(pieces), "a piece may stand once over all scripts"
    vocabulary = [*_SCRIPT_SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(
        models.BPE(vocab={text: index for index, text in enumerate(vocabulary)}, merges=[])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in (*_SCRIPT_SPECIAL, *special)]
    )
    known = (*_SCRIPT_MARKERS, *special)
    longer = [p for p in pieces if len(p.encode()) > 1 and p not in known]
    tokenizer.add_tokens(
        [AddedToken(text, special=False, normalized=False) for text in (*_SCRIPT_MARKERS, *longer)]
    )
    return tokenizer


def _successors(tokenizer: Tokenizer, scripts: Mapping[str, Sequence[str | int]]) -> dict[int, int]:
    def identify(piece: str | int) -> int:
        if isinstance(piece, str) and len(piece.encode()) > 1:
            token = tokenizer.token_to_id(piece)
        else:
            byte = piece if isinstance(piece, int) else piece.encode()[0]
            token = tokenizer.token_to_id(_byte_characters()[byte])
        assert token is not None, piece
        return int(token)

    following: dict[int, int] = {}
    for key, script in scripts.items():
        current = identify(key)
        for piece in script:
            assert current not in following, f"two scripts go on after the token before {piece!r}"
            following[current] = current = identify(piece)
    return following


def _save_table(folder: Path, following: Mapping[int, int], *, size: int, end: int) -> None:
    import mlx.core as mx

    head = [[0.0] * size for _ in range(size)]
    for token in range(size):
        head[following.get(token, end)][token] = _SCRIPT_SCALE
    width = 16
    layer = "model.layers.0."
    weights = {
        "model.embed_tokens.weight": mx.eye(size),
        "model.norm.weight": mx.ones((size,)),
        "lm_head.weight": mx.array(head),
        f"{layer}input_layernorm.weight": mx.ones((size,)),
        f"{layer}post_attention_layernorm.weight": mx.ones((size,)),
        f"{layer}self_attn.q_proj.weight": mx.zeros((width, size)),
        f"{layer}self_attn.k_proj.weight": mx.zeros((width, size)),
        f"{layer}self_attn.v_proj.weight": mx.zeros((width, size)),
        f"{layer}self_attn.o_proj.weight": mx.zeros((size, width)),
        f"{layer}mlp.gate_proj.weight": mx.zeros((width, size)),
        f"{layer}mlp.up_proj.weight": mx.zeros((width, size)),
        f"{layer}mlp.down_proj.weight": mx.zeros((size, width)),
    }
    folder.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(folder / "model.safetensors"), weights, {"format": "mlx"})
    config = _BASE | {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": size,
        "num_hidden_layers": 1,
        "intermediate_size": width,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "head_dim": width,
        "vocab_size": size,
        "max_position_embeddings": 131072,
        "eos_token_id": end,
    }
    _write_json(folder / "config.json", config)


# ---------------------------------------------------------------------------- files


def save_tokenizer(tokenizer: Tokenizer, folder: Path, *, chat_template: str) -> None:
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(chat_template, encoding="utf-8")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 32768,
        "clean_up_tokenization_spaces": False,
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
    }
    _write_json(folder / "tokenizer_config.json", settings)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")
