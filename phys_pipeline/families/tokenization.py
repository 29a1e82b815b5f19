"""Tokenizers that are proven before they are used.

A tokenizer class that doesn't fit its files fails silently: transformers 5 reads a byte-level ``tokenizer.json`` under the
name ``LlamaTokenizerFast`` such that every space and newline disappears, and a silent config pads on the left. Both train
and sample on wrong text without any error. So tokenizers are loaded here, not by the pipeline, must give a probe text back
unchanged, and always pad on the right (the transformers of video models treat masks as prefix lengths).
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from phys_pipeline.errors import ModelError, first_line

logger = logging.getLogger(__name__)

PROBE = "A red ball falls,\nthen it bounces 2 times."
WORD_PROBE = "a red ball falls then it bounces"


def round_trips(tokenizer: Any, text: str) -> bool:
    """True if ``decode(encode(text)) == text``, special tokens aside."""
    return decoded(tokenizer, text) == text


def decoded(tokenizer: Any, text: str) -> str:
    ids = tokenizer(text).input_ids
    return tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def load_tokenizer(folder: str | Path, probe: str = PROBE) -> Any:
    """Load the tokenizer in ``folder`` (local) with the first class that gives ``probe`` back, padding on the right.

    ``AutoTokenizer`` is tried first, then ``PreTrainedTokenizerFast``, which takes ``tokenizer.json`` as it is. For CLIP,
    which lower-cases and respaces punctuation by design, use ``WORD_PROBE``. Raises ModelError if the files are missing or
    no class passes.
    """
    import transformers

    folder = Path(folder)
    if not folder.is_dir():
        raise ModelError(f"no tokenizer folder {folder}: the model download is incomplete, fetch it again")
    failures = []
    for name in ("AutoTokenizer", "PreTrainedTokenizerFast"):
        try:
            tokenizer = getattr(transformers, name).from_pretrained(folder)
            result = decoded(tokenizer, probe)
        except Exception as error:  # transformers raises many kinds for unreadable files
            failures.append(f"{name}: {first_line(error)}")
            continue
        if result == probe:
            if failures:
                logger.warning("tokenizer %s loaded with %s because %s", folder, name, "; ".join(failures))
            tokenizer.padding_side = "right"
            if tokenizer.pad_token is None:
                tokenizer.pad_token = tokenizer.eos_token  # padding is masked, so its content never matters
            return tokenizer
        failures.append(f"{name}: {probe!r} came back as {result!r}")
    raise ModelError(
        f"the tokenizer in {folder} does not give text back with transformers {transformers.__version__} "
        f"({'; '.join(failures)}): install another transformers version or fetch the tokenizer files again"
    )
