"""Video from text with OpenVid-1M's MVDiT, as a diffusers pipeline."""

from __future__ import annotations

from typing import Any

import torch
from diffusers import AutoencoderKL, DDPMScheduler
from diffusers.video_processor import VideoProcessor
from torch import Tensor
from transformers import T5EncoderModel, T5Tokenizer

from phys_pipeline.errors import ConfigError
from phys_pipeline.models.mvdit import MVDiTTransformer3DModel
from phys_pipeline.models.mvdit_conversion import SCHEDULER
from phys_pipeline.models.picture_vae import SCALING_FACTOR, decode_frames
from phys_pipeline.pipelines.t5_text import encode_t5
from phys_pipeline.pipelines.video_pipeline import Generators, StepEnded, VideoPipeline, VideoPipelineOutput

SIZE_MULTIPLE = 16  # pixels: the autoencoder's 8 times the patch of 2


def mvdit_scheduler() -> DDPMScheduler:
    """The noise schedule that MVDiT was trained with."""
    return DDPMScheduler(**SCHEDULER)


class MVDiTPipeline(VideoPipeline):
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

    vae: Any

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

    @property
    def guidance_scale(self) -> float:
        return self._guidance_scale

    @property
    def do_classifier_free_guidance(self) -> bool:
        return self._guidance_scale != 1.0

    @torch.no_grad()
    def encode_prompt(
        self,
        prompt: str | list[str],
        max_sequence_length: int | None = None,
        clean_caption: bool = True,
    ) -> tuple[Tensor, Tensor]:
        """T5's features (B, L, D) of the prompts and their mask (B, L), 1 for tokens of the text.

        Prompts are cleaned as the captions of the training were and cut after ``max_sequence_length`` tokens (None: as many as
        the null caption has). The empty prompt is one token.
        """
        length = max_sequence_length or self.transformer.config.max_sequence_length
        return encode_t5(self, prompt, length, clean=clean_caption)

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
        generator: Generators = None,
        latents: Tensor | None = None,  # (B, C, T, H', W')
        prompt_embeds: Tensor | None = None,  # (B, L, D)
        prompt_attention_mask: Tensor | None = None,  # (B, L)
        clean_caption: bool = True,
        max_sequence_length: int | None = None,
        output_type: str = "pil",
        return_dict: bool = True,
        callback_on_step_end: StepEnded | None = None,
        callback_on_step_end_tensor_inputs: tuple[str, ...] | list[str] = ("latents",),
    ) -> VideoPipelineOutput | tuple[Any]:
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
        self._check_call(
            prompt, callback_on_step_end_tensor_inputs, prompt_embeds=prompt_embeds, prompt_attention_mask=prompt_attention_mask
        )
        self._check_sizes((num_frames, height, width), num_inference_steps, prompt_embeds)
        if not 1 <= guided <= channels:
            raise ConfigError(f"cfg_channels is {cfg_channels}: use 1 to {channels}, or None for all")
        self._guidance_scale, self._interrupt = guidance_scale, False
        device, dtype = self._execution_device, self.transformer.dtype

        if prompt is not None:
            prompt_embeds, prompt_attention_mask = self.encode_prompt(prompt, max_sequence_length, clean_caption)
        text, mask = (
            value.to(device).repeat_interleave(num_videos_per_prompt, dim=0)  # type: ignore[union-attr]  # checked above
            for value in (prompt_embeds, prompt_attention_mask)
        )
        batch = len(text)
        shape = (batch, channels, num_frames, height // self.vae_scale_factor, width // self.vae_scale_factor)
        latents = self._start(latents, shape, generator)
        self.scheduler.set_timesteps(num_inference_steps, device=device)
        self._num_timesteps = len(self.scheduler.timesteps)
        tensors: dict[str, Any] = {"latents": latents, "prompt_embeds": text, "prompt_attention_mask": mask}
        with self.progress_bar(total=self._num_timesteps) as progress:
            for step, timestep in enumerate(self.scheduler.timesteps):
                if self._interrupt:
                    continue
                x = tensors["latents"].to(dtype)
                text, mask = (tensors[name] for name in ("prompt_embeds", "prompt_attention_mask"))
                if self.do_classifier_free_guidance:  # the null caption is read with the prompt's mask, as in training
                    x = x.repeat(2, 1, 1, 1, 1)
                    text = torch.cat([text, self._null_caption()[: text.shape[1]].to(text).expand(batch, -1, -1)])
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
                self._step_ended(callback_on_step_end, callback_on_step_end_tensor_inputs, step, timestep, tensors)
                progress.update()

        frames: Any = tensors["latents"]
        if output_type != "latent":
            decoded = decode_frames(self.vae, (frames / SCALING_FACTOR).to(self.vae.dtype))
            frames = self.video_processor.postprocess_video(decoded, output_type=output_type)
        self.maybe_free_model_hooks()
        return VideoPipelineOutput(frames=frames) if return_dict else (frames,)

    def _check_sizes(self, size: tuple[int, int, int], steps: int, embeds: Tensor | None) -> None:
        frames, height, width = size
        if height % SIZE_MULTIPLE or width % SIZE_MULTIPLE or min(height, width) < SIZE_MULTIPLE or frames < 1:
            raise ConfigError(f"{frames} frames of {height}x{width} pixels: use at least one, and multiples of {SIZE_MULTIPLE}")
        if not 2 <= steps <= self.scheduler.config.num_train_timesteps:
            raise ConfigError(f"num_inference_steps is {steps}: use 2 to {self.scheduler.config.num_train_timesteps}")
        if embeds is not None and embeds.shape[1] > self.transformer.config.max_sequence_length:
            raise ConfigError(f"prompt_embeds has {embeds.shape[1]} tokens, the null caption only "
                              f"{self.transformer.config.max_sequence_length}: use no more")  # fmt: skip


def guide(prompt: Tensor, null: Tensor, scale: float, channels: int) -> Tensor:  # (B, 2C, T, H, W) twice
    """Classifier-free guidance of the first ``channels`` channels. All others, the variance among them, are the prompt's."""
    guided = null[:, :channels] + scale * (prompt[:, :channels] - null[:, :channels])
    return torch.cat([guided, prompt[:, channels:]], dim=1)
