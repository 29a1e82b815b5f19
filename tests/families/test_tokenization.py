"""Tokenizers give text back, pad on the right, and are refused when they don't."""

import json
import shutil

import pytest

from phys_pipeline.errors import ModelError
from phys_pipeline.families import load_model
from phys_pipeline.families.tokenization import PROBE, load_tokenizer, round_trips


def test_tokenizer_gives_text_back_and_pads_right(model, folder):
    tokenizer = model.pipeline.tokenizer
    assert round_trips(tokenizer, PROBE) and "\n" in PROBE and " " in PROBE
    from transformers import AutoTokenizer

    assert AutoTokenizer.from_pretrained(folder / "tokenizer").padding_side == "left"  # the trap: its config is silent
    mask = model.family.encode_text(model, ["ab", "abcdef"])["prompt_attention_mask"]
    assert mask.tolist()[0] == [1] * 3 + [0] * 13 and mask.sum(1).tolist() == [3, 7]


def _byte_level_tokenizer(folder, *, keeps_spaces):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate([*alphabet, "<|end_of_text|>"])}, merges=[]))
    if keeps_spaces:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    tokenizer.decoder = decoders.ByteLevel()
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end_of_text|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def test_byte_level_tokenizer_as_llama_3_has_it(tmp_path):
    tokenizer = load_tokenizer(_byte_level_tokenizer(tmp_path / "good", keeps_spaces=True))
    assert round_trips(tokenizer, "two  spaces\nand a line")
    assert tokenizer.padding_side == "right" and tokenizer.pad_token == "<|end_of_text|>"


def test_the_class_that_the_model_names_does_not_decide(folder, tmp_path):
    """HunyuanVideo's index names LlamaTokenizerFast for a byte-level file; transformers 5 then drops every space."""
    shutil.copytree(folder, tmp_path / "model")
    shutil.rmtree(tmp_path / "model" / "tokenizer")
    named = _byte_level_tokenizer(tmp_path / "model" / "tokenizer", keeps_spaces=True) / "tokenizer_config.json"
    named.write_text(named.read_text().replace("PreTrainedTokenizerFast", "LlamaTokenizerFast"))
    index = json.loads((tmp_path / "model" / "model_index.json").read_text())
    index["tokenizer"] = ["transformers", "LlamaTokenizerFast"]
    (tmp_path / "model" / "model_index.json").write_text(json.dumps(index))
    model = load_model(str(tmp_path / "model"))
    assert round_trips(model.pipeline.tokenizer, PROBE) and model.pipeline.tokenizer.padding_side == "right"
    mask = model.family.encode_text(model, ["a ball", "aball"])["prompt_attention_mask"]
    assert mask.sum(1).tolist() == [6, 5]  # the space is a token


def test_tokenizer_that_drops_spaces_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"Aredballfalls.*transformers"):
        load_tokenizer(_byte_level_tokenizer(tmp_path / "bad", keeps_spaces=False))
    with pytest.raises(ModelError, match="no tokenizer folder"):
        load_tokenizer(tmp_path / "none")
