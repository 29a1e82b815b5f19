"""The example workflows as prompts; ``write_examples.py`` makes the files of the pack from them.

``SMALL`` says what the tests put in place of models and sizes that a CPU can't run.
"""

from __future__ import annotations

import copy
from typing import Any

from assets import AUTOENCODER, CHECKPOINT, DIFFUSERS, EMBEDDED
from graphs import Graph, node, own

from phys_pipeline.adapters.embedded import demo_pair

_SCORE = {"fps": 24.0, "motion_class": "auto", "preset": "calibrated", "start_frame": 0, "max_frames": 0}
_BESIDE = {"label_a": "Baseline", "label_b": "Physics", "fps": 24.0, "layout": "horizontal", "length": "hold last", "gap": 4}
_REPORT = {"label_a": "Baseline", "label_b": "Physics", "filename_prefix": "physmotion/report", "save": True}
_PIPELINE = {
    "source": "tiny (embedded)", "family": "auto", "dtype": "auto", "offload": "auto", "vae_tiling": True, "repo_id": "",
}  # fmt: skip
_PROMPT, _ = demo_pair()


def _save(video: Any, prefix: str) -> dict[str, Any]:
    return node("SaveVideo", video=video, filename_prefix=f"physmotion/{prefix}", format="auto", codec="auto")


def _compared(graph: Graph, a: Any, b: Any, fps: Any, name: str, **labels: str) -> Graph:
    """Scores of both sides, the two in one video, and a report."""
    rate = {} if fps is None else {"fps": fps}
    return {
        **graph,
        "20": own("SpectralScore", images=a, **{**_SCORE, **rate}),
        "21": own("SpectralScore", images=b, **{**_SCORE, **rate}),
        "22": own("SideBySide", images_a=a, images_b=b, scores_a=["20", 1], scores_b=["21", 1], **{**_BESIDE, **rate, **labels}),
        "23": _save(["22", 0], name),
        "24": own("ScoreReport", scores_a=["20", 1], scores_b=["21", 1], **{**_REPORT, **labels}),
    }


def _score_any_video() -> Graph:
    overlay = {"style": "beside the picture", "position": "top right", "graph": True, "label": "", "size": 18.0, "opacity": 0.8}
    return {
        "1": node("LoadVideo", file="video.mp4"),
        "2": own("SpectralScore", video=["1", 0], **_SCORE),
        "3": node("GetVideoComponents", video=["1", 0]),
        "4": own("ScoreOverlay", images=["3", 0], scores=["2", 1], **overlay),
        "5": node("CreateVideo", images=["4", 0], audio=["3", 1], fps=["3", 2], bit_depth=8),
        "6": _save(["5", 0], "scored"),
    }


def _hunyuan_ab_native() -> Graph:
    """ComfyUI's own template for HunyuanVideo, with our loader, sampler and comparison."""
    tiles = {"tile_size": 256, "overlap": 64, "temporal_size": 64, "temporal_overlap": 8}
    prompt = "A glass ball rolls slowly across a wooden table and stops, filmed by a still camera"
    graph = {
        "1": node("UNETLoader", unet_name="hunyuan_video_t2v_720p_bf16.safetensors", weight_dtype="default"),
        "2": node("ModelSamplingSD3", model=["1", 0], shift=7.0),
        "3": own("LoadLoRA", model=["2", 0], lora_name="none", strength=1.0, apply_mode="merge"),
        "4": node(
            "DualCLIPLoader", clip_name1="clip_l.safetensors", clip_name2="llava_llama3_fp8_scaled.safetensors",
            type="hunyuan_video", device="default",
        ),
        "5": node("CLIPTextEncode", clip=["4", 0], text=prompt),
        "6": node("FluxGuidance", conditioning=["5", 0], guidance=6.0),
        "7": node("KSamplerSelect", sampler_name="euler"),
        "8": node("BasicScheduler", model=["2", 0], scheduler="simple", steps=20, denoise=1.0),
        "9": node("EmptyHunyuanLatentVideo", width=848, height=480, length=73, batch_size=1),
        "10": own(
            "ABSampler", baseline=["2", 0], physics=["3", 0], positive=["6", 0], noise_seed=0, cfg=1.0, sampler=["7", 0],
            sigmas=["8", 0], latent=["9", 0], mode="both",
        ),
        "11": node("VAELoader", vae_name="hunyuan_video_vae_bf16.safetensors"),
        "12": node("VAEDecodeTiled", samples=["10", 0], vae=["11", 0], **tiles),
        "13": node("VAEDecodeTiled", samples=["10", 1], vae=["11", 0], **tiles),
    }  # fmt: skip
    compared = _compared(graph, ["12", 0], ["13", 0], None, "hunyuan_ab")
    compared["24"]["inputs"]["about"] = ["3", 1]
    return compared


def _diffusers_ab() -> Graph:
    graph = {
        "1": own("LoadPipeline", **_PIPELINE),
        "2": own("PipelineLoRA", pipeline=["1", 0], lora_name="none", weight=1.0),
        "3": own("PipelineABSampler", pipeline=["2", 0], **_sampling("both", 1)),
    }
    return _compared(graph, ["3", 0], ["3", 1], ["3", 2], "diffusers_ab")


def _best_of_n() -> Graph:
    settings = {"frames_per_video": 0, "keep": "best", "count": 1, "max_loss": 0.5, "motion_class": "auto"}
    return {
        "1": own("LoadPipeline", **_PIPELINE),
        "2": own("PipelineABSampler", pipeline=["1", 0], **_sampling("baseline only", 4)),
        "3": own("MotionFilter", images=["2", 0], fps=["2", 2], **settings),
        "4": _save(["3", 1], "best_of_n"),
    }


def _embedded_demo() -> Graph:
    graph = {"1": own("EmbeddedDemo", prompt=_PROMPT, seed=0, steps=20, count=3, lora_name="embedded")}
    compared = _compared(graph, ["1", 0], ["1", 1], ["1", 2], "demo")
    compared["24"]["inputs"]["about"] = ["1", 3]
    return compared


def _sampling(mode: str, count: int) -> dict[str, Any]:
    return {
        "prompt": _PROMPT, "negative_prompt": "", "width": 0, "height": 0, "frames": 0, "steps": 0, "guidance": 0.0,
        "true_cfg": 0.0, "seed": 0, "count": count, "fps": 0.0, "mode": mode,
    }  # fmt: skip


EXAMPLES: dict[str, Graph] = {
    "score_any_video": _score_any_video(),
    "hunyuan_ab_native": _hunyuan_ab_native(),
    "diffusers_ab": _diffusers_ab(),
    "best_of_n": _best_of_n(),
    "embedded_demo": _embedded_demo(),
}
SMALL: dict[str, dict[str, dict[str, Any]]] = {  # inputs by class
    "score_any_video": {},
    "hunyuan_ab_native": {
        "UNETLoader": {"unet_name": CHECKPOINT}, "PhysMotion_LoadLoRA": {"lora_name": DIFFUSERS}, "BasicScheduler": {"steps": 2},
        "EmptyHunyuanLatentVideo": {"width": 64, "height": 32, "length": 9}, "VAELoader": {"vae_name": AUTOENCODER},
    },
    "diffusers_ab": {"PhysMotion_PipelineLoRA": {"lora_name": EMBEDDED}, "PhysMotion_PipelineABSampler": {"steps": 2}},
    "best_of_n": {"PhysMotion_PipelineABSampler": {"steps": 2, "count": 2}},
    "embedded_demo": {"PhysMotion_EmbeddedDemo": {"steps": 2, "count": 2}},
}  # fmt: skip


def small(name: str, graph: Graph) -> Graph:
    """A converted example with what the tests have: tiny models, few steps, and random conditioning for text encoders."""
    graph = copy.deepcopy(graph)
    for number, content in list(graph.items()):
        content["inputs"] |= SMALL[name].get(content["class_type"], {})
        if content["class_type"] == "CLIPTextEncode":
            graph[number] = node("Test_Conditioning", seed=0)
        elif content["class_type"] == "DualCLIPLoader":
            del graph[number]
    return graph
