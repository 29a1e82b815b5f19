"""CogVideoX 2B, 5B and 1.5 text-to-video (Yang et al. 2024, arXiv:2408.06072) through diffusers' ``CogVideoXPipeline``.

Facts that are easy to get wrong, all kept here: the network predicts v on a schedule with the signal-to-noise ratio shifted and
its last step pure noise, and the shift is another one in 2B (3) than in 5B and 1.5 (1), so the noise path comes from the
model's scheduler; its latents are (B, T, C, H, W); the rotary table of 5B and 1.5 is made outside the network from the size;
the autoencoder gives the right number of frames back only for an odd number of latent frames, so clips have 8k+1 frames; and
1.5 joins latent frames in pairs, so one is added in front, and dropped again: in sampling, by the pipeline, one of noise, in
training a copy of the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from phys_pipeline.errors import ModelError
from phys_pipeline.families.base import FamilySpec, VideoFamily
from phys_pipeline.families.diffusers_family import DiffusersFamily, rows
from phys_pipeline.noise_path import NoisePath, VariancePreserving

GENERATION: dict[str, Any] = {
    "max_sequence_length": 226,
    "num_frames": 49,
    "height": 480,
    "width": 720,
    "fps": 8,
    "num_inference_steps": 50,
    "guidance_scale": 6.0,
    "negative_prompt": "",
}

SPEC = FamilySpec(
    name="cogvideox",
    pipeline_class="CogVideoXPipeline",
    transformer_class="CogVideoXTransformer3DModel",
    vae_class="AutoencoderKLCogVideoX",
    hub_id="zai-org/CogVideoX-5b",
    lora_target_regex=r"transformer_blocks\.\d+\.attn1\.(to_q|to_k|to_v|to_out\.0)",
    time_stride=4,
    size_multiple=16,
    native_fps=8.0,
    default_shift=1.0,
    default_guidance=6.0,
    latent_channels=16,
    frame_rule="8k+1 frames (1, 9, ..., 49; 1.5: 81)",
    generation=GENERATION,
    prediction="v",
    licence="2B: Apache-2.0; 5B and 1.5: CogVideoX licence (registration for commercial use)",
    parameters=5.6,
    memory="11 GB of weights in bf16 for the transformer of 5B and 10 GB for T5, by arithmetic",
    sizes="480x720 (2B, 5B), 768x1360 (1.5)",
)


def alphas_cumprod(snr_shift_scale: float, steps: int = 1000) -> Tensor:
    """The released models' products abar_t (steps,), float64: betas linear in the root from 0.00085 to 0.012, the signal-to-noise
    ratio divided by ``snr_shift_scale``, and moved and stretched so that the last is 0 (Lin et al. 2023, arXiv:2305.08891)."""
    betas = torch.linspace(0.00085**0.5, 0.012**0.5, steps, dtype=torch.float64).square()
    abar = torch.cumprod(1 - betas, dim=0)
    root = (abar / (snr_shift_scale + (1 - snr_shift_scale) * abar)).sqrt()
    return ((root - root[-1]) * root[0] / (root[0] - root[-1])).square()


class CogVideoXFamily(DiffusersFamily):
    """Text-to-video CogVideoX. Predicts v; timestep is the whole-number index of the schedule, 0 to 999."""

    path_from_scheduler = True

    def __init__(self) -> None:
        self.spec = SPEC
        self.path: NoisePath = VariancePreserving(alphas_cumprod(1.0), prediction="v")
        self.transformer_config: Any = None

    def bind(self, transformer: Any) -> VideoFamily:
        if transformer.config.in_channels != transformer.config.out_channels:
            raise ModelError("this CogVideoX transformer takes a picture beside the noise: give a text-to-video model")
        self.transformer_config = transformer.config
        return super().bind(transformer)

    def bind_scheduler(self, scheduler: Any) -> VideoFamily:
        kind = scheduler.config.prediction_type
        if kind != "v_prediction":
            raise ModelError(f"the scheduler says prediction_type={kind}, CogVideoX predicts v: fetch the model again")
        self.path = VariancePreserving(scheduler.alphas_cumprod, prediction="v")
        return self

    def frame_step(self, vae: Any = None) -> int:
        """Twice the time stride, so that the number of latent frames is odd."""
        stride = super().frame_step(vae)
        return 2 * stride if stride > 1 else 1

    def noise_shape(self, settings: Mapping[str, Any], pipeline: Any) -> tuple[int, int, int, int]:
        """As in the base class; of 1.5 with the frame that its pipeline drops again."""
        channels, frames, height, width = super().noise_shape(settings, pipeline)
        pair = pipeline.transformer.config.patch_size_t or 1
        return channels, -(-frames // pair) * pair, height, width

    def sampling_arguments(
        self, conditioning: Mapping[str, Tensor], settings: Mapping[str, Any], noise: Tensor
    ) -> dict[str, Any]:  # noise: (1, C, T', H', W')
        """As in the base class, with the noise as (1, T', C, H', W') and in the embeddings' dtype, which the pipeline keeps."""
        latents = noise.transpose(1, 2).to(conditioning["prompt_embeds"].dtype)
        return super().sampling_arguments(conditioning, settings, latents)

    def inputs(
        self, x_t: Tensor, sigma: Tensor, conditioning: Mapping[str, Tensor], guidance: float | Tensor | None = None
    ) -> dict[str, Any]:  # (B, C, T', H', W'), (B,)
        """Forward arguments, video as (B, T', C, H', W'). No guidance is taken. ``bind`` must have seen the transformer."""
        if self.transformer_config is None:
            raise ModelError("the transformer isn't known yet: load it with this family, or bind it")
        batch, _, frames, height, width = x_t.shape
        video, added = x_t.transpose(1, 2), -frames % (self.transformer_config.patch_size_t or 1)
        if added:
            video = torch.cat([video[:, :1].expand(-1, added, -1, -1, -1), video], dim=1)
        tensors = {
            "timestep": self.path.timestep(sigma).to(x_t.device),
            "encoder_hidden_states": conditioning["prompt_embeds"].to(x_t.device, x_t.dtype),
        }
        return {
            "hidden_states": video,
            **rows(batch, tensors),
            "image_rotary_emb": self._rotary(frames + added, height, width, x_t.device),
            "return_dict": False,
        }

    def prediction(self, raw: Any, like: Tensor) -> Tensor:  # like: (B, C, T', H', W')
        predicted: Tensor = raw if isinstance(raw, Tensor) else raw[0]
        return super().prediction(predicted[:, -like.shape[2] :].transpose(1, 2), like)

    def _rotary(self, frames: int, height: int, width: int, device: torch.device) -> tuple[Tensor, Tensor] | None:
        """Cosines and sines of every token by the pipeline's own method, which only looks at its transformer's config and its
        autoencoder's scale."""
        from types import SimpleNamespace

        from diffusers import CogVideoXPipeline

        if not self.transformer_config.use_rotary_positional_embeddings:
            return None
        stand_in: Any = SimpleNamespace(transformer=SimpleNamespace(config=self.transformer_config), vae_scale_factor_spatial=1)
        return CogVideoXPipeline._prepare_rotary_positional_embeddings(stand_in, height, width, frames, device)
