"""A folder as the trainer leaves it, made without training: a small LoRA in both formats, provenance, a report and videos."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import torch

from phys_pipeline.adapters.formats import PHYS_METADATA
from phys_pipeline.adapters.weights import LoraLayer
from phys_pipeline.adapters.writers import write_adapter

MEASURE = {"name": "denoising loss", "unit": "clips", "base": 0.5, "trained": 0.4, "difference": -0.1, "low": -0.15,
           "high": -0.05, "n": 3}  # fmt: skip
PROVENANCE = {
    "family": "hunyuan_video", "base_model": "lab/tiny-video", "revision": "0123456789abcdef", "rank": 2, "lora_alpha": 4.0,
    "max_train_steps": 10, "frames": 5, "height": 16, "width": 16, "fps": 8.0, "learning_rate": 0.01, "seed": 3, "data": "d1ce",
    "sigma_law": "stratified", "objective": ["spectral"], "loss_weights": {"spectral": 0.1}, "motion_preset": "calibrated",
    "motion_form": "excess", "motion_space": "pixel", "phys_pipeline": "0.1.0", "versions": {"torch": "2.0"},
    "clips": [{"name": "0.mp4", "sha256": "00", "caption": "a ball rolls"}], "scores": {"step": 10, "measures": [MEASURE]},
}  # fmt: skip


def layers(seed=0, width=8, rank=2):
    g = torch.Generator().manual_seed(seed)
    names = [f"transformer_blocks.0.attn.to_{part}" for part in "qkv"]
    return {name: LoraLayer(torch.randn(rank, width, generator=g), torch.randn(width, rank, generator=g), 4.0) for name in names}


def make_run(folder: Path, seed: int = 0, **provenance) -> Path:
    about = {**PROVENANCE, **provenance}
    metadata = {PHYS_METADATA: json.dumps(about, sort_keys=True)}
    write_adapter(folder / "pytorch_lora_weights.safetensors", layers(seed), "diffusers", metadata)
    write_adapter(folder / "comfyui" / f"{folder.name}.safetensors", layers(seed), "comfyui", metadata)
    (folder / "provenance.json").write_text(json.dumps(about, indent=2, sort_keys=True))
    (folder / "report.md").write_text("# Training report\n")
    (folder / "config.yaml").write_text("output_dir: /home/someone/out\n")  # stays here
    (folder / "checkpoint-5").mkdir()
    (folder / "checkpoint-5" / "optimizer.pt").write_bytes(b"state")
    for name, video in (("base", "prompt-0-seed-0"), ("step-5", "prompt-0-seed-0"), ("step-10", "prompt-0-seed-0")):
        where = folder / "validation" / name
        where.mkdir(parents=True)
        pair = None if name == "base" else f"{video}-pair.mp4"
        entry = {"prompt": 'a "red" ball | falls', "seed": 0, "file": f"{video}.mp4", "pair": pair, "scores": None}
        (where / "results.json").write_text(json.dumps({"held_out": [], "videos": [entry]}))
        for file in filter(None, (entry["file"], pair)):
            (where / file).write_bytes(hashlib.sha256(f"{name}{file}".encode()).digest() * 100)
    return folder


def snapshot(folder: Path) -> dict[str, str]:
    """{path: checksum} of everything but the receipt."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "published.json"
    }
