"""Prompts as the API takes them."""

from __future__ import annotations

from typing import Any

from assets import AUTOENCODER, CHECKPOINT

Graph = dict[str, dict[str, Any]]


def node(kind: str, /, **inputs: Any) -> dict[str, Any]:
    return {"class_type": kind, "inputs": inputs}


def own(name: str, /, **inputs: Any) -> dict[str, Any]:
    return node(f"PhysMotion_{name}", **inputs)


def frames(**inputs: Any) -> dict[str, Any]:
    settings = {"frames": 16, "height": 48, "width": 64, "channels": 3, "kind": "", "speed": 2.0}
    return node("Test_Frames", **{**settings, **inputs})


def score(images: Any = None, **inputs: Any) -> dict[str, Any]:
    settings = {"fps": 8.0, "motion_class": "auto", "preset": "calibrated", "start_frame": 0, "max_frames": 0}
    return own("SpectralScore", **({"images": images} if images else {}), **{**settings, **inputs})


def overlay(images: Any, scores: Any, **inputs: Any) -> dict[str, Any]:
    settings = {
        "style": "panel", "position": "top right", "graph": True, "label": "", "size": 40.0, "opacity": 0.8,
    }  # fmt: skip
    return own("ScoreOverlay", images=images, scores=scores, **{**settings, **inputs})


def side_by_side(**inputs: Any) -> dict[str, Any]:
    settings = {"label_a": "Baseline", "label_b": "Physics", "fps": 8.0, "layout": "horizontal", "length": "hold last", "gap": 4}
    return own("SideBySide", **{**settings, **inputs})


def load_lora(model: Any, name: str, **inputs: Any) -> dict[str, Any]:
    return own("LoadLoRA", model=model, lora_name=name, **{"strength": 1.0, "apply_mode": "merge", **inputs})


def native(seed: int = 3, steps: int = 2, length: int = 9) -> Graph:
    """ComfyUI's own nodes up to the sampler: 1 model, 3 prompt, 4 latent, 5 sampler, 6 sigmas, 7 noise."""
    return {
        "1": node("UNETLoader", unet_name=CHECKPOINT, weight_dtype="default"),
        "3": node("Test_Conditioning", seed=0),
        "4": node("EmptyHunyuanLatentVideo", width=64, height=32, length=length, batch_size=1),
        "5": node("KSamplerSelect", sampler_name="euler"),
        "6": node("BasicScheduler", model=["1", 0], scheduler="simple", steps=steps, denoise=1.0),
        "7": node("RandomNoise", noise_seed=seed),
    }


def sampled(graph: Graph, number: str, model: Any) -> str:
    """Add ComfyUI's own sampler for a model; returns the number of the sampler's node."""
    graph[f"{number}g"] = node("BasicGuider", model=model, conditioning=["3", 0])
    graph[number] = node(
        "SamplerCustomAdvanced",
        noise=["7", 0],
        guider=[f"{number}g", 0],
        sampler=["5", 0],
        sigmas=["6", 0],
        latent_image=["4", 0],
    )
    return number


def ab_sampler(baseline: Any, physics: Any, seed: int = 3, **inputs: Any) -> dict[str, Any]:
    settings = {
        "positive": ["3", 0], "noise_seed": seed, "cfg": 1.0, "sampler": ["5", 0], "sigmas": ["6", 0], "latent": ["4", 0],
        "mode": "both",
    }  # fmt: skip
    return own("ABSampler", baseline=baseline, physics=physics, **{**settings, **inputs})


def look(value: Any, other: Any = None) -> dict[str, Any]:
    return node("Test_Look", value=value, **({"other": other} if other else {}))


def autoencoder() -> Graph:
    """Makes the tiny video autoencoder's file, which a VAELoader can read from then on."""
    return {"1": node("Test_Autoencoder", file=AUTOENCODER)}


def pipeline(**inputs: Any) -> dict[str, Any]:
    settings = {"source": "tiny (embedded)", "family": "auto", "dtype": "fp32", "offload": "auto", "vae_tiling": False}
    return own("LoadPipeline", **{**settings, **inputs})


def pipeline_sampler(handle: Any, **inputs: Any) -> dict[str, Any]:
    settings = {
        "prompt": "a red square moves right", "negative_prompt": "", "width": 0, "height": 0, "frames": 0, "steps": 2,
        "guidance": 0.0, "true_cfg": 1.0, "seed": 5, "count": 1, "fps": 0.0, "mode": "both",
    }  # fmt: skip
    return own("PipelineABSampler", pipeline=handle, **{**settings, **inputs})
