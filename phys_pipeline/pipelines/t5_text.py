"""Captions for models that read them through T5, cleaned in the way their training captions were.

What is removed is what comes with captions from the web: addresses, tags, nicknames, brackets, file names, long numbers. Chinese
characters go too: these models never learned any, and T5's vocabulary has none. A plain English sentence changes only its case.
"""

from __future__ import annotations

import html
import logging
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote_plus

import torch
from torch import Tensor

from phys_pipeline.errors import ConfigError

logger = logging.getLogger(__name__)

_ADDRESS = r"\bhttps?:\S+|\bwww\.\S+|\b[a-z0-9-]+(?:\.[a-z0-9-]+)*\.(?:com|net|org|edu|gov|ru)\b(?:/\S*)?"
_FILE = r"\S+\.(?:png|jpe?g|bmp|webp|eps|pdf|mp4|gif)\b"
_STEPS: tuple[tuple[str, str], ...] = (  # pattern, what stands there instead
    (_ADDRESS, ""),
    (_FILE, ""),
    (r"</?[a-z!][^<>]*>", ""),  # tags
    (r"@\w+", ""),
    (r"[\u31c0-\u4dff\u4e00-\u9fff]+", ""),  # Chinese characters, and signs made of them
    (r"[\u2010-\u2015\u2212\u301c\u3030\ufe58\ufe63\uff0d]", "-"),
    (r"[\u201c\u201d\u00ab\u00bb\u00b4\u0060]", '"'),
    (r"[\u2018\u2019]", "'"),
    (r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\b\d{6,}\b|#\d+\b", " "),  # network addresses, article numbers
    (r"[\[\](){}<>|\\*#\u2122\u00ae\u00a9\u2022~]+", " "),
    (r"([\"'])[\"']+", r"\1"),
    (r"\.{2,}", " "),
    (r"\s+", " "),
    (r"^[\s\"'_,:;-]+|[\s\"'_,:-]+$", ""),
)
_COMPILED = tuple((re.compile(pattern), instead) for pattern, instead in _STEPS)


def clean_caption(text: str) -> str:
    """One pass of cleaning; models saw their captions after two, since one may uncover more (``&amp;lt;b&amp;gt;``)."""
    text = html.unescape(unquote_plus(text).strip().lower())
    for pattern, instead in _COMPILED:
        text = pattern.sub(instead, text)
    return text.strip()


@torch.no_grad()
def encode_t5(pipeline: Any, prompts: str | Sequence[str], length: int, *, clean: bool = True) -> tuple[Tensor, Tensor]:
    """Features (B, length, D) and mask (B, length) of the prompts by a pipeline's ``tokenizer`` and ``text_encoder``.

    Every text is made up to ``length`` tokens on the right, and one that has more is cut, with a warning; the last is always the
    token that ends a text, so an empty prompt has one. ConfigError for no prompt at all.
    """
    texts = [prompts] if isinstance(prompts, str) else list(prompts)
    if not texts or not all(isinstance(text, str) for text in texts):
        raise ConfigError("no prompt given: pass a text, or a list with at least one")
    if clean:
        texts = [clean_caption(clean_caption(text)) for text in texts]
    tokenizer = pipeline.tokenizer
    needed = max(len(ids) for ids in tokenizer(texts, verbose=False).input_ids)
    if needed > length:
        logger.warning("a prompt has %d tokens and the model reads %d: its end is cut off", needed, length)
    tokens = tokenizer(
        texts, padding="max_length", padding_side="right", truncation=True, max_length=length, return_attention_mask=True,
        return_tensors="pt",
    )  # fmt: skip
    device = pipeline._execution_device
    mask = tokens.attention_mask.to(device)
    return pipeline.text_encoder(tokens.input_ids.to(device), attention_mask=mask)[0], mask
