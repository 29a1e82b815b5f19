"""Random pipelines of the families that diffusers has, a few hundred thousand parameters each, built from configs.

``build(case)`` makes one in memory, ``save(case, folder)`` writes it with a ``phys_pipeline.json``. A case is a family or a
variant of one, such as Wan with two experts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

T5_TOKENIZER = Path(__file__).parent / "golden" / "t5_tokenizer"


@dataclass(frozen=True)
class Case:
    """A variant of a family: what its builder is called with, and a size that it takes."""

    family: str
    options: dict[str, Any] = field(default_factory=dict)
    frames: int = 9
    side: int = 32


CASES = {
    "wan": Case("wan"),
    "wan_two_experts": Case("wan", {"boundary": 0.875}),
    "wan_time_per_token": Case("wan", {"per_token": True}),
    "cogvideox": Case("cogvideox"),
    "cogvideox_2b": Case("cogvideox", {"rotary": False, "snr_shift": 3.0}),
    "cogvideox_1_5": Case("cogvideox", {"pair": 2}),
    "ltx_video": Case("ltx_video", frames=17, side=64),
    "ltx_video_timestep": Case("ltx_video", {"timestep": True}, frames=17, side=64),
    "hunyuan_video_1_5": Case("hunyuan_video_1_5", side=64),
    "mochi": Case("mochi", frames=13),
}


def generation(case: str) -> dict[str, Any]:
    """Sampling settings of a case's ``phys_pipeline.json``: small and short."""
    about = CASES[case]
    settings: dict[str, Any] = {"num_frames": about.frames, "height": about.side, "width": about.side, "num_inference_steps": 2}
    return settings if about.family == "hunyuan_video_1_5" else {**settings, "max_sequence_length": 16}


def build(case: str, seed: int = 0) -> Any:
    """The pipeline of a case with random weights."""
    about = CASES[case]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        pipeline = _BUILDERS[about.family](**about.options)
    for part in pipeline.components.values():
        if isinstance(part, torch.nn.Module):
            part.eval()
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def save(case: str, folder: str | Path, seed: int = 0) -> Path:
    """Write the pipeline of a case and its description."""
    folder = Path(folder)
    build(case, seed).save_pretrained(folder)
    about = {"revision": f"{case}-{seed}", "generation": generation(case)}
    (folder / "phys_pipeline.json").write_text(json.dumps(about, indent=2, sort_keys=True) + "\n")
    return folder


def t5_tokenizer() -> Any:
    """The real one of T5, as files."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(T5_TOKENIZER)


def t5_encoder(width: int, vocabulary: int = 32128) -> Any:
    """A T5 encoder of one layer."""
    from transformers import T5Config, T5EncoderModel

    return T5EncoderModel(T5Config(vocab_size=vocabulary, d_model=width, d_kv=8, d_ff=32, num_layers=1, num_heads=2))


def _wan(boundary: float | None = None, per_token: bool = False) -> Any:
    from diffusers import AutoencoderKLWan, UniPCMultistepScheduler, WanPipeline, WanTransformer3DModel
    from transformers import UMT5Config, UMT5EncoderModel

    def transformer() -> Any:
        return WanTransformer3DModel(
            num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4, text_dim=16, freq_dim=16, ffn_dim=32,
            num_layers=2, rope_max_seq_len=32,
        )  # fmt: skip

    return WanPipeline(
        tokenizer=t5_tokenizer(),
        text_encoder=UMT5EncoderModel(UMT5Config(vocab_size=32128, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2)),
        vae=AutoencoderKLWan(
            base_dim=4, z_dim=4, dim_mult=[1, 1, 1, 1], num_res_blocks=1, latents_mean=[0.1, -0.2, 0.3, 0.0],
            latents_std=[1.5, 0.5, 2.0, 1.0],
        ),
        scheduler=UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0),
        transformer=transformer(),
        transformer_2=transformer() if boundary else None,
        boundary_ratio=boundary,
        expand_timesteps=per_token,
    )  # fmt: skip


def _cogvideox(rotary: bool = True, snr_shift: float = 1.0, pair: int | None = None) -> Any:
    from diffusers import AutoencoderKLCogVideoX, CogVideoXDDIMScheduler, CogVideoXPipeline, CogVideoXTransformer3DModel

    return CogVideoXPipeline(
        tokenizer=t5_tokenizer(),
        text_encoder=t5_encoder(16),
        vae=AutoencoderKLCogVideoX(
            block_out_channels=(8, 8, 8, 8), latent_channels=4, layers_per_block=1, norm_num_groups=4, scaling_factor=0.7
        ),
        transformer=CogVideoXTransformer3DModel(
            num_attention_heads=2, attention_head_dim=16, in_channels=4, out_channels=4, time_embed_dim=8, text_embed_dim=16,
            num_layers=2, sample_width=4, sample_height=4, sample_frames=9, patch_size=2, patch_size_t=pair,
            max_text_seq_length=16, use_rotary_positional_embeddings=rotary,
        ),
        scheduler=CogVideoXDDIMScheduler(
            prediction_type="v_prediction", rescale_betas_zero_snr=True, snr_shift_scale=snr_shift, timestep_spacing="trailing",
            clip_sample=False,
        ),
    )  # fmt: skip


def _ltx_video(timestep: bool = False) -> Any:
    from diffusers import AutoencoderKLLTXVideo, FlowMatchEulerDiscreteScheduler, LTXPipeline, LTXVideoTransformer3DModel

    vae = AutoencoderKLLTXVideo(
        latent_channels=8, block_out_channels=(8, 8, 8, 8), decoder_block_out_channels=(8, 8, 8, 8),
        layers_per_block=(1, 1, 1, 1, 1), decoder_layers_per_block=(1, 1, 1, 1, 1), timestep_conditioning=timestep,
    )  # fmt: skip
    vae.latents_mean.copy_(torch.linspace(-0.3, 0.3, 8))
    vae.latents_std.copy_(torch.linspace(0.5, 2.0, 8))
    return LTXPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(
            use_dynamic_shifting=True, base_shift=0.95, max_shift=2.05, base_image_seq_len=1024, max_image_seq_len=4096,
            shift_terminal=0.1,
        ),
        vae=vae,
        text_encoder=t5_encoder(16),
        tokenizer=t5_tokenizer(),
        transformer=LTXVideoTransformer3DModel(
            in_channels=8, out_channels=8, num_attention_heads=2, attention_head_dim=8, cross_attention_dim=16, num_layers=2,
            caption_channels=16,
        ),
    )  # fmt: skip


def _hunyuan_video_1_5() -> Any:
    from diffusers import (
        AutoencoderKLHunyuanVideo15,
        ClassifierFreeGuidance,
        FlowMatchEulerDiscreteScheduler,
        HunyuanVideo15Pipeline,
        HunyuanVideo15Transformer3DModel,
    )
    from transformers import ByT5Tokenizer, Qwen2_5_VLTextConfig, Qwen2_5_VLTextModel, Qwen2Tokenizer

    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    alphabet = [chr(b) for b in printable] + [chr(256 + i) for i in range(256 - len(printable))]
    special = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    tokenizer = Qwen2Tokenizer(vocab={token: i for i, token in enumerate((*alphabet, *special))}, merges=[])
    tokenizer.add_special_tokens({"additional_special_tokens": list(special[1:])})
    tokenizer.padding_side = "right"
    tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
    )
    text = Qwen2_5_VLTextConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=3, num_attention_heads=2,
        num_key_value_heads=2, rope_scaling={"mrope_section": [1, 1, 2], "rope_type": "default"},
    )  # fmt: skip
    return HunyuanVideo15Pipeline(
        text_encoder=Qwen2_5_VLTextModel(text),
        tokenizer=tokenizer,
        transformer=HunyuanVideo15Transformer3DModel(
            in_channels=9, out_channels=4, num_attention_heads=2, attention_head_dim=8, num_layers=2, num_refiner_layers=1,
            mlp_ratio=2.0, text_embed_dim=16, text_embed_2_dim=16, image_embed_dim=12, rope_axes_dim=(2, 2, 4), target_size=64,
            task_type="t2v",
        ),
        vae=AutoencoderKLHunyuanVideo15(
            latent_channels=4, block_out_channels=(8, 8, 8, 8, 8), layers_per_block=1, downsample_match_channel=False,
            upsample_match_channel=False,
        ),
        scheduler=FlowMatchEulerDiscreteScheduler(shift=5.0),
        text_encoder_2=t5_encoder(16, vocabulary=384),
        tokenizer_2=ByT5Tokenizer(),
        guider=ClassifierFreeGuidance(guidance_scale=3.0),
    )  # fmt: skip


def _mochi() -> Any:
    from diffusers import AutoencoderKLMochi, FlowMatchEulerDiscreteScheduler, MochiPipeline, MochiTransformer3DModel

    return MochiPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(invert_sigmas=True),
        vae=AutoencoderKLMochi(
            encoder_block_out_channels=(32, 32, 32, 32), decoder_block_out_channels=(32, 32, 32, 32),
            layers_per_block=(1, 1, 1, 1, 1),
        ),
        text_encoder=t5_encoder(32),
        tokenizer=t5_tokenizer(),
        transformer=MochiTransformer3DModel(
            num_attention_heads=2, attention_head_dim=8, num_layers=2, pooled_projection_dim=16, text_embed_dim=32,
            time_embed_dim=4, max_sequence_length=16,
        ),
    )  # fmt: skip


_BUILDERS = {
    "wan": _wan,
    "cogvideox": _cogvideox,
    "ltx_video": _ltx_video,
    "hunyuan_video_1_5": _hunyuan_video_1_5,
    "mochi": _mochi,
}
