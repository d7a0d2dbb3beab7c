"""Tokenizers without a model: byte-level with a chat template, and SentencePiece-like."""

from __future__ import annotations

from functools import cache
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers
from transformers import PreTrainedTokenizerFast

from omlxd.ipc.messages import Sampling
from omlxd.worker.detokenize import Decoding
from omlxd.worker.grammar import Grammars
from omlxd.worker.template import ChatTemplate
from omlxd.worker.text_model import TextModel
from tests.support.models import CHAT_TEMPLATE, EOS_TOKENS, VOCABULARY, byte_level_tokenizer


def chat_tokenizer(template: str | None = CHAT_TEMPLATE) -> Any:
    """The tiny models' tokenizer as transformers gives it out; a new object each time."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=byte_level_tokenizer(), eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = template
    return tokenizer


@cache
def sentencepiece_tokenizer() -> Any:
    """As Llama's: "▁" for a space, `<0xE2>` for bytes without a piece, one leading space cut."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", *"abcdehlortw.,!", "▁h", "▁w", "he", "ll", "▁▁", "or"]
    merges = [("▁", "h"), ("▁", "w"), ("h", "e"), ("l", "l"), ("▁", "▁"), ("o", "r")]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={piece: index for index, piece in enumerate(pieces)},
            merges=merges,
            unk_token="<unk>",
            byte_fallback=True,
        )
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in ("<unk>", "<s>", "</s>")]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", bos_token="<s>")


def text_model(**changes: Any) -> TextModel:
    """What the text side would know of a tiny model, without a model folder."""
    tokenizer = chat_tokenizer()
    facts: dict[str, Any] = {
        "tokenizer": tokenizer,
        "template": ChatTemplate(tokenizer, turn_ends=frozenset(EOS_TOKENS)),
        "decoding": Decoding(tokenizer),
        "grammars": Grammars(tokenizer, vocabulary=VOCABULARY, ends=frozenset(EOS_TOKENS)),
        "window": 64,
        "vocabulary": VOCABULARY,
        "stop_tokens": frozenset(EOS_TOKENS),
        "sampling": Sampling(),
    }
    return TextModel(**(facts | changes))
