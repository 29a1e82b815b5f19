"""Saved, looked at and loaded again: adapters of every registered family, and what the published card says about them."""

from __future__ import annotations

import json

import pytest
import tiny
import tiny_adapter
import tiny_families
import tiny_mvdit
import tiny_open_sora
import tiny_open_sora_2
import torch

from phys_pipeline.adapters import load_adapter, save_adapter
from phys_pipeline.adapters.card import CardFacts, make_card
from phys_pipeline.adapters.formats import WEIGHTS_FILE
from phys_pipeline.adapters.layers import linear_layers, transformers_of
from phys_pipeline.adapters.readers import open_adapter
from phys_pipeline.cli import main
from phys_pipeline.families import as_loaded, family_names, get_family

OTHERS = {  # case: pipeline, what writes it, sampling settings
    "hunyuan_video": (tiny.tiny_pipeline, tiny.save_tiny, tiny.GENERATION),
    "mvdit": (tiny_mvdit.tiny_pipeline, tiny_mvdit.save_tiny, {"max_sequence_length": 24}),
    "open_sora_1_2": (tiny_open_sora.tiny_pipeline, tiny_open_sora.save_tiny, tiny_open_sora.GENERATION),
    "open_sora_2": (tiny_open_sora_2.tiny_pipeline, tiny_open_sora_2.save_tiny, tiny_open_sora_2.GENERATION),
}
CASES = (*tiny_families.CASES, *OTHERS)


def family_of(case):
    return tiny_families.CASES[case].family if case in tiny_families.CASES else case


def size_of(case):
    about = tiny_families.CASES.get(case)
    frames, side = (about.frames, about.side) if about else (17 if case == "open_sora_1_2" else 5, 16)
    return {"frames": frames, "height": side, "width": side}


def build(case):
    return tiny_families.build(case) if case in tiny_families.CASES else OTHERS[case][0]()


@torch.no_grad()
def output(case, pipeline):
    """A prediction of the transformer that carries adapters: of two experts the second."""
    family = get_family(family_of(case))
    model = as_loaded(pipeline, family)
    settings = {**model.defaults, **(tiny_families.generation(case) if case in tiny_families.CASES else OTHERS[case][2])}
    size = size_of(case)
    text = family.encode_text(pipeline, ["a ball"], settings)
    shape = family.latent_shape(size["frames"], size["height"], size["width"], pipeline.vae)
    x = torch.randn(1, *shape, generator=torch.Generator().manual_seed(0))
    return family.prediction(transformers_of(pipeline)[-1].eval()(**family.inputs(x, torch.tensor([0.5]), text)), x)


def trained(case, folder, rslora):
    """Save an adapter with mixed ranks and alphas; returns the folder and what the trained model predicts."""
    from peft import LoraConfig

    pipeline = build(case)
    transformer, spec = transformers_of(pipeline)[-1], get_family(family_of(case)).spec
    transformer.add_adapter(LoraConfig(
        r=4, lora_alpha=6, target_modules=spec.lora_target_regex, use_rslora=rslora, rank_pattern={"to_k": 3},
        alpha_pattern={"to_v": 11},
    ))  # fmt: skip
    tiny_adapter.fill([p for n, p in transformer.named_parameters() if "lora" in n])
    more = {"expert": "low"} if len(transformers_of(pipeline)) == 2 else {}
    save_adapter(transformer, folder, family=spec.name, base_model="lab/base", extra_metadata={**more, "rank": 4})
    return folder, output(case, pipeline)


def test_all_families_are_here():
    assert {family_of(case) for case in CASES} == set(family_names())


@pytest.mark.parametrize("case", CASES)
def test_every_file_of_every_family_makes_the_trained_output(case, tmp_path, capsys):
    folder, wanted = trained(case, tmp_path / "run", rslora=CASES.index(case) % 2 == 0)
    spec = get_family(family_of(case)).spec
    assert main(["adapter", "convert", str(folder), "--to", "diffusers", "-o", str(tmp_path / "again.safetensors")]) == 0
    copies = list((folder / "comfyui").glob("*"))
    assert len(copies) == int(spec.comfyui)
    changes = {name: layer.delta() for name, layer in open_adapter(folder / WEIGHTS_FILE).read().items()}
    for file in (folder, tmp_path / "again.safetensors", *copies):
        pipeline = build(case)
        before = output(case, pipeline)
        info = load_adapter(pipeline, file)
        assert info.tensors == 2 * len(changes) and not info.skipped
        found = output(case, pipeline)
        assert (found - wanted).abs().max() <= 1e-5 * max(1.0, wanted.abs().max()) and (wanted - before).abs().max() > 1e-3
        again = open_adapter(file / WEIGHTS_FILE if file == folder else file).read()
        assert again.keys() == changes.keys()
        assert all((again[n].delta() - change).abs().max() <= 1e-6 * change.abs().max() for n, change in changes.items())
        capsys.readouterr()
        assert main(["adapter", "inspect", str(file), "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["layers"] == len(changes) and report["base_model"] == "lab/base" and report["problem"] is None


@pytest.mark.parametrize("case", ["open_sora_2", "hunyuan_video_1_5"])
def test_no_comfyui_file_is_made_for_a_model_that_only_has_the_same_names(case, tmp_path, capsys):
    folder, _ = trained(case, tmp_path / "run", rslora=False)
    assert main(["adapter", "convert", str(folder), "--to", "comfyui", "-o", str(tmp_path / "x.safetensors")]) == 2
    assert f"{case} has no file for ComfyUI" in capsys.readouterr().err and not (tmp_path / "x.safetensors").exists()


@pytest.mark.slow
@pytest.mark.parametrize("case", ["wan", "wan_two_experts", "ltx_video", "cogvideox", "hunyuan_video_1_5", "mochi", *OTHERS])
def test_the_cards_diffusers_snippet_runs(case, tmp_path, monkeypatch):
    """The pipeline class, where the adapter goes, and pictures that the export takes. Steps and text length are made small."""
    folder, _ = trained(case, tmp_path / "run", rslora=False)
    base = tmp_path / "base"
    if case in tiny_families.CASES:
        tiny_families.save(case, base)
    else:
        OTHERS[case][1](base)
    about = {**json.loads((folder / "provenance.json").read_text()), **size_of(case)}
    card = make_card(CardFacts("owner/name", about, "lab/base", "v1"))
    spec = get_family(family_of(case)).spec
    snippet = card.split("```python\n")[1].split("\n```")[0]
    lengths = {"hunyuan_video_1_5": None, "open_sora_1_2": None, "mvdit": 24}  # the first two take none
    length = lengths.get(case, 16)
    short = f", max_sequence_length={length}" if length else ""
    for old, new in (
        ('"lab/base"', repr(str(base))),
        ('"owner/name"', repr(str(folder))),
        (f"num_inference_steps={spec.generation['num_inference_steps']}", f"num_inference_steps=2{short}"),
        ("torch.cuda.is_available()", "False"),
    ):
        assert snippet.count(old) == 1
        snippet = snippet.replace(old, new)
    monkeypatch.chdir(tmp_path)
    found: dict = {}
    exec(snippet, found)
    assert type(found["pipe"]).__name__ == spec.pipeline_class and (tmp_path / "video.gif").is_file()
    carrying = transformers_of(found["pipe"])
    assert [bool(getattr(transformer, "peft_config", None)) for transformer in carrying] == [False] * (len(carrying) - 1) + [True]
    (name,) = carrying[-1].peft_config
    layers = open_adapter(folder / WEIGHTS_FILE).read()
    for module in layers:
        layer = carrying[-1].get_submodule(module)
        assert layer.scaling[name] == pytest.approx(layers[module].scale, rel=1e-6)
    assert linear_layers(carrying[-1]).keys() >= layers.keys()
