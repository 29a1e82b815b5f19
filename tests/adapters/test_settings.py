"""PEFT's settings as they come with files: its rules for patterns, and nothing that a stranger could abuse."""

import json
import math
from pathlib import Path

import pytest
import torch

from phys_pipeline.adapters.settings import read_settings, stored_settings
from phys_pipeline.adapters.weights import LoraLayer
from phys_pipeline.errors import AdapterError


def settings(**config):
    return read_settings_of({f"transformer.{name}": value for name, value in config.items()})


def read_settings_of(content):
    return read_settings(Path("x.safetensors"), {"lora_adapter_metadata": json.dumps(content)})


def test_patterns_follow_pefts_rules():
    from peft.utils.other import get_pattern_key

    ranks = {"^proj_out": 3, "attn.to_q": 5, r"transformer_blocks\.1\.attn\.to_k": 6}
    found = settings(r=4, lora_alpha=8, rank_pattern=ranks)
    for name in ("proj_out", "single_transformer_blocks.0.proj_out", "transformer_blocks.1.attn.to_k", "x_attn.to_q",
                 "single_transformer_blocks.1.attn.to_k", "transformer_blocks.0.attn.to_q", "attn.to_q"):  # fmt: skip
        assert found.rank_of(name) == ranks.get(get_pattern_key(list(ranks), name), 4), name


def test_rslora_and_defaults():
    assert settings(r=4, lora_alpha=6).alpha_of("a") == 6.0
    assert settings(r=4, lora_alpha=6, use_rslora=True).alpha_of("a") == 6 * math.sqrt(4)
    assert settings(r=4, alpha_pattern={"a": 3}).alpha_of("a") == 3.0 and settings(r=4).alpha_of("b") == 8.0  # as PEFT has it
    assert read_settings_of({}) is None


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"use_dora": True}, "uses DoRA"),
        ({"lora_bias": True}, "a trained bias"),
        ({"field_of_the_future": 1}, "field_of_the_future is unknown"),
        ({"r": "4"}, "no number"),
        ({"r": 0}, "no number"),
        ({"r": 1.5}, "no number"),
        ({"lora_alpha": None}, "no number"),
        ({"lora_alpha": float("nan")}, "no number"),
        ({"lora_alpha": float("inf")}, "no number"),
        ({"rank_pattern": ["a"]}, "no number"),
        ({"rank_pattern": {"a": True}}, "no number"),
        ({"alpha_pattern": {"(a+)+": 1}}, "no layer name"),
    ],
)
def test_other_settings_are_refused(config, message):
    with pytest.raises(AdapterError, match=f"can't apply x.safetensors: .*{message}"):
        settings(**config)


def test_stored_settings_come_back():
    layers = {name: LoraLayer(torch.ones(rank, 2), torch.ones(2, rank), alpha)
              for name, rank, alpha in (("a.proj_out", 2, 4.0), ("proj_out", 3, 5.0), ("b", 2, 4.0))}  # fmt: skip
    stored = stored_settings(layers)
    found = settings(**stored)
    assert {name: (found.rank_of(name), found.alpha_of(name)) for name in layers} == {
        name: (layer.rank, layer.alpha) for name, layer in layers.items()
    }
    assert set(stored_settings({"b": layers["b"]})) == {"r", "lora_alpha", "target_modules"}
