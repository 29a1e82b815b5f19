"""Laws that every registered family obeys, whoever wrote it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from phys_pipeline.errors import ConfigError
from phys_pipeline.families import families_with, family_names, find_family, get_family
from phys_pipeline.models.open_sora_2 import TRANSFORMER_CONFIG
from phys_pipeline.noise_path import RectifiedFlow, VariancePreserving

FAMILIES = family_names()
PREDICTIONS = {"noise - x0": (1, None), "x0 - noise": (-1, None), "epsilon": (None, "eps"), "v": (None, "v")}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_noise_path_gives_the_clean_clip_back(name):
    path = get_family(name).path
    x0, noise = torch.randn(2, 9, 4, 3, 2, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sigma = torch.linspace(0, 1, 9)
    x_t = path.corrupt(x0, noise, sigma)
    found = path.clean(path.target(x0, noise, sigma), x_t, sigma)
    scale = 1.0
    if isinstance(path, VariancePreserving) and path.prediction == "eps":  # rounding of x_t grows by 1 / sqrt(abar)
        scale = float(path.alphas_cumprod.min().rsqrt())
    assert torch.allclose(found, x0, atol=1e-10 * scale)
    assert torch.allclose(x_t[0], x0[0], atol=0.2), "sigma 0 is clean"
    assert abs(float((x_t[-1] * noise[-1]).mean() / noise[-1].square().mean()) - 1) < 0.2, "sigma 1 is noise"


@pytest.mark.parametrize("name", FAMILIES)
def test_the_path_is_the_one_that_the_spec_names(name):
    family = get_family(name)
    sign, kind = PREDICTIONS[family.spec.prediction]
    if kind is None:
        assert isinstance(family.path, RectifiedFlow) and family.path.sign == sign
    else:
        assert isinstance(family.path, VariancePreserving) and family.path.prediction == kind


@pytest.mark.parametrize("name", FAMILIES)
def test_the_spec_is_complete(name):
    family = get_family(name)
    spec = family.spec
    assert spec.name == name and spec.licence and spec.memory and spec.sizes and spec.frame_rule and spec.parameters > 0
    assert re.fullmatch(r"[\w.-]+/[\w.-]+", spec.hub_id) and re.compile(spec.lora_target_regex)
    settings = spec.generation
    assert {"num_frames", "height", "width", "fps", "num_inference_steps"} <= set(settings)
    family.check_size(settings["num_frames"], settings["height"], settings["width"])
    channels, frames, height, width = family.latent_shape(settings["num_frames"], settings["height"], settings["width"])
    assert channels == spec.latent_channels and height * spec.space_stride == settings["height"]
    assert width * spec.space_stride == settings["width"] and frames <= settings["num_frames"]
    assert settings["fps"] == spec.native_fps
    with pytest.raises(ConfigError, match="is not a multiple"):
        family.check_size(settings["num_frames"], settings["height"] + 1, settings["width"])
    for part in ("pipeline", "transformer", "vae"):
        assert spec.load_class(part).__name__ == getattr(spec, f"{part}_class")
    assert set(family.components("text")) <= set(family.components("pipeline"))
    assert set(family.components("transformer")) <= set(family.components("pipeline"))


def test_no_two_families_are_mixed_up():
    for fact in ("pipeline_class", "hub_id", "transformer_class"):
        values = [getattr(get_family(name).spec, fact) for name in FAMILIES]
        assert len(set(values)) == len(values), fact
    for name in FAMILIES:
        family = get_family(name)
        assert find_family(family.spec.hub_id).spec.name == name  # without asking the Hub
        assert [f.spec.name for f in families_with(pipeline_class=family.spec.pipeline_class)] == [name]
        assert get_family(name.replace("_", "-").upper()).spec is family.spec


def test_the_page_on_families_names_them_all():
    page = (Path(__file__).parents[2] / "docs" / "families.md").read_text(encoding="utf-8")
    for name in FAMILIES:
        assert page.count(f"| `{name}` |") == 1, f"docs/families.md needs one row for {name}"


_RELEASED = {  # family: what the released config has that the class's defaults have not
    "cogvideox": {"num_attention_heads": 48, "num_layers": 42, "use_rotary_positional_embeddings": True},
    "hunyuan_video": {},
    "hunyuan_video_1_5": {},
    "ltx_video": {},
    "mochi": {},
    "mvdit": {},
    "open_sora_1_2": {},
    "open_sora_2": TRANSFORMER_CONFIG,
    "wan": {"num_attention_heads": 12, "num_layers": 30, "ffn_dim": 8960},
}


@pytest.mark.parametrize("name", _RELEASED)
def test_parameters_are_those_of_the_released_model(name):
    spec = get_family(name).spec
    with torch.device("meta"):
        transformer = spec.load_class("transformer")(**_RELEASED[name])
    count = sum(p.numel() for p in transformer.parameters()) / 1e9
    assert spec.parameters == pytest.approx(count, abs=0.051)
    from phys_pipeline.adapters.layers import linear_layers

    layers = linear_layers(transformer)
    blocks = {n for n in layers if re.match(r"(single_|temporal_)?(transformer_)?blocks\.\d+\.", n)}
    chosen = {n for n in layers if re.fullmatch(spec.lora_target_regex, n)}
    assert chosen and chosen < blocks
