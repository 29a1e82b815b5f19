"""Video from text with OpenVid-1M's MVDiT, as a diffusers pipeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from diffusers import AutoencoderKL, DDPMScheduler
from diffusers.pipelines.pipeline_utils import DiffusionPipeline
from diffusers.utils import BaseOutput
from diffusers.utils.torch_utils import randn_tensor
from diffusers.video_processor import VideoProcessor
from torch import Tensor
from transformers import T5EncoderModel, T5Tokenizer

from phys_pipeline.errors import ConfigError
from phys_pipeline.models.mvdit import MVDiTTransformer3DModel
from phys_pipeline.models.mvdit_conversion import SCHEDULER
from phys_pipeline.models.picture_vae import SCALING_FACTOR, decode_frames
from phys_pipeline.pipelines.lora_loading import TransformerLoraMixin
from phys_pipeline.pipelines.t5_text import encode_t5

StepEnded = Callable[[Any, int, Tensor, dict[str, Any]], dict[str, Any]]

SIZE_MULTIPLE = 16  # pixels: the autoencoder's 8 times the patch of 2


def mvdit_scheduler() -> DDPMScheduler:
    """The noise schedule that MVDiT was trained with."""
    return DDPMScheduler(**SCHEDULER)  # type: ignore[arg-type]


@dataclass
class MVDiTPipelineOutput(BaseOutput):
    """``frames``: videos as (B, T, 3, H, W) tensor, (B, T, H, W, 3) array, lists of pictures, or latents (B, C, T, H', W')."""

    frames: Any


class MVDiTPipeline(DiffusionPipeline, TransformerLoraMixin):
    """Text-to-video with converted MVDiT weights (``phys-pipeline convert``).

    Args:
        tokenizer, text_encoder: T5 v1.1 XXL.
        transformer: predicts noise and variance.
        vae: Stable Diffusion's picture autoencoder (sd-vae-ft-ema), used frame by frame.
        scheduler: as :func:`mvdit_scheduler` makes it.
    """

    model_cpu_offload_seq: Any = "text_encoder->transformer->vae"
    _optional_components: Any = ["tokenizer", "text_encoder", "vae"]  # noqa: RUF012  # diffusers reads a list
    _callback_tensor_inputs = ("latents", "prompt_embeds", "prompt_attention_mask")

    tokenizer: Any
    text_encoder: Any
    transformer: Any
    vae: Any
    scheduler: Any

    def __init__(
        self,
        tokenizer: T5Tokenizer,
        text_encoder: T5EncoderModel,
        transformer: MVDiTTransformer3DModel,
        vae: AutoencoderKL,
        scheduler: DDPMScheduler,
    ) -> None:
        super().__init__()
        self.register_modules(
            tokenizer=tokenizer, text_encoder=text_encoder, transformer=transformer, vae=vae, scheduler=scheduler
        )
        self.vae_scale_factor = 8
        self.video_processor = VideoProcessor(vae_scale_factor=self.vae_scale_factor)
        self._guidance_scale = 1.0
        self._num_timesteps = 0
        self._interrupt = False

    @property
    def guidance_scale(self) -> float:
        return self._guidance_scale

    @property
    def do_classifier_free_guidance(self) -> bool:
        return self._guidance_scale != 1.0

    @property
    def num_timesteps(self) -> int:
        return self._num_timesteps

    @property
    def interrupt(self) -> bool:
        """Set ``pipeline._interrupt`` in a callback to leave out the steps that remain."""
        return self._interrupt

    @torch.no_grad()
    def encode_prompt(
        self,
        prompt: str | list[str],
        num_videos_per_prompt: int = 1,
        max_sequence_length: int | None = None,
        clean_caption: bool = True,
    ) -> tuple[Tensor, Tensor]:
        """T5's features (B, L, D) of the prompts and their mask (B, L), 1 for tokens of the text.

        Prompts are cleaned as the captions of the training were and cut after ``max_sequence_length`` tokens (None: as many as
        the null caption has). The empty prompt is one token.
        """
        length = max_sequence_length or self.transformer.config.max_sequence_length
        embeds, mask = encode_t5(self, prompt, length, clean=clean_caption)
        return tuple(x.repeat_interleave(num_videos_per_prompt, dim=0) for x in (embeds, mask))  # type: ignore[return-value]

    @torch.no_grad()
    def __call__(
        self,
        prompt: str | list[str] | None = None,
        height: int = 512,
        width: int = 512,
        num_frames: int = 16,
        num_inference_steps: int = 100,
        guidance_scale: float = 7.0,
        cfg_channels: int | None = None,
        num_videos_per_prompt: int = 1,
        generator: torch.Generator | list[torch.Generator] | None = None,
        latents: Tensor | None = None,  # (B, C, T, H', W')
        prompt_embeds: Tensor | None = None,  # (B, L, D)
        prompt_attention_mask: Tensor | None = None,  # (B, L)
        clean_caption: bool = True,
        max_sequence_length: int | None = None,
        output_type: str = "pil",
        return_dict: bool = True,
        callback_on_step_end: StepEnded | None = None,
        callback_on_step_end_tensor_inputs: tuple[str, ...] | list[str] = ("latents",),
    ) -> MVDiTPipelineOutput | tuple[Any]:
        """Generate videos.

        Args:
            prompt: or ``prompt_embeds`` with their ``prompt_attention_mask``, as :meth:`encode_prompt` returns them.
            height, width: multiples of 16. The weights were trained at one size (``transformer.config.sample_height`` times 8)
                and 16 frames; others run without promise.
            guidance_scale: 1 is none. What guidance moves away from is the model's learned null caption, not an empty prompt,
                so there is no negative prompt.
            cfg_channels: guidance moves the first so many channels of the noise; the others are the prompt's own. None: all, as
                for the model of 512 pixels; 3 for one of 256.
            generator: draws the start and the noise of every step.
            latents: noise to start from, float32.
            max_sequence_length: tokens of a prompt; None: as many as the null caption has.
            output_type: "pil", "np", "pt" or "latent" (scaled latents).
            callback_on_step_end: ``(pipeline, step, timestep, tensors) -> tensors``.

        Raises ConfigError for sizes that the model can't make and arguments that don't go together.
        """
        channels = self.transformer.config.in_channels
        guided = channels if cfg_channels is None else cfg_channels
        self._check(prompt, prompt_embeds, prompt_attention_mask, (num_frames, height, width), num_inference_steps,
                    callback_on_step_end_tensor_inputs)  # fmt: skip
        if not 1 <= guided <= channels:
            raise ConfigError(f"cfg_channels is {cfg_channels}: use 1 to {channels}, or None for all")
        self._guidance_scale, self._interrupt = guidance_scale, False
        device, dtype = self._execution_device, self.transformer.dtype

        if prompt is not None:
            prompt_embeds, prompt_attention_mask = self.encode_prompt(
                prompt, num_videos_per_prompt, max_sequence_length, clean_caption
            )
        batch = len(prompt_embeds)  # type: ignore[arg-type]  # checked above
        shape = (batch, channels, num_frames, height // self.vae_scale_factor, width // self.vae_scale_factor)
        if latents is None:
            latents = randn_tensor(shape, generator=generator, device=device, dtype=torch.float32)
        elif latents.shape != shape:
            raise ConfigError(f"latents are {tuple(latents.shape)}, these settings need {shape}")
        self.scheduler.set_timesteps(num_inference_steps, device=device)
        self._num_timesteps = len(self.scheduler.timesteps)
        tensors: dict[str, Any] = {
            "latents": latents.to(device, torch.float32),
            "prompt_embeds": prompt_embeds,
            "prompt_attention_mask": prompt_attention_mask,
        }
        with self.progress_bar(total=self._num_timesteps) as progress:
            for step, timestep in enumerate(self.scheduler.timesteps):
                if self._interrupt:
                    continue
                x = tensors["latents"].to(dtype)
                text, mask = (tensors[name].to(device) for name in ("prompt_embeds", "prompt_attention_mask"))
                if self.do_classifier_free_guidance:  # the null caption is read with the prompt's mask, as in training
                    x = x.repeat(2, 1, 1, 1, 1)
                    text = torch.cat([text, self._null_caption(text.shape[1]).to(text).expand(batch, -1, -1)])
                output = self.transformer(
                    hidden_states=x,
                    timestep=timestep.expand(len(x)),
                    encoder_hidden_states=text.to(dtype),
                    encoder_attention_mask=mask,
                    return_dict=False,
                )[0].float()
                if self.do_classifier_free_guidance:
                    ours, null = output.chunk(2)
                    output = guide(ours, null, guidance_scale, guided)
                tensors["latents"] = self.scheduler.step(
                    output, timestep, tensors["latents"], generator=generator, return_dict=False
                )[0]
                if callback_on_step_end is not None:
                    named = {name: tensors[name] for name in callback_on_step_end_tensor_inputs}
                    tensors.update(callback_on_step_end(self, step, timestep, named))
                progress.update()

        frames: Any = tensors["latents"]
        if output_type != "latent":
            decoded = decode_frames(self.vae, (frames / SCALING_FACTOR).to(self.vae.dtype))
            frames = self.video_processor.postprocess_video(decoded, output_type=output_type)
        self.maybe_free_model_hooks()
        return MVDiTPipelineOutput(frames=frames) if return_dict else (frames,)

    def _null_caption(self, length: int) -> Tensor:
        """(1, length, caption channels): the learned features of no caption, also where the weights wait on another device."""
        caption = self.transformer.null_caption
        if caption.is_meta:  # sequential offload keeps the weights in one of its hooks
            hook = self.transformer._hf_hook
            maps = (getattr(h, "weights_map", None) for h in getattr(hook, "hooks", (hook,)))
            caption = next(weights["null_caption"] for weights in maps if weights)
        return caption[None, :length]

    def _check(
        self, prompt: Any, embeds: Tensor | None, mask: Tensor | None, size: tuple[int, int, int], steps: int, tensors: Any
    ) -> None:
        frames, height, width = size
        if height % SIZE_MULTIPLE or width % SIZE_MULTIPLE or min(height, width) < SIZE_MULTIPLE or frames < 1:
            raise ConfigError(f"{frames} frames of {height}x{width} pixels: use at least one, and multiples of {SIZE_MULTIPLE}")
        if not 2 <= steps <= self.scheduler.config.num_train_timesteps:
            raise ConfigError(f"num_inference_steps is {steps}: use 2 to {self.scheduler.config.num_train_timesteps}")
        if (prompt is None) == (embeds is None) or (embeds is None) != (mask is None):
            raise ConfigError("pass either prompt, or prompt_embeds and prompt_attention_mask")
        if embeds is not None and embeds.shape[1] > self.transformer.config.max_sequence_length:
            raise ConfigError(f"prompt_embeds has {embeds.shape[1]} tokens, the null caption only "
                              f"{self.transformer.config.max_sequence_length}: use no more")  # fmt: skip
        unknown = set(tensors) - set(self._callback_tensor_inputs)
        if unknown:
            raise ConfigError(f"no callback tensor {sorted(unknown)[0]!r}: use {', '.join(self._callback_tensor_inputs)}")


def guide(prompt: Tensor, null: Tensor, scale: float, channels: int) -> Tensor:  # (B, 2C, T, H, W) twice
    """Classifier-free guidance of the first ``channels`` channels. All others, the variance among them, are the prompt's."""
    guided = null[:, :channels] + scale * (prompt[:, :channels] - null[:, :channels])
    return torch.cat([guided, prompt[:, channels:]], dim=1)
