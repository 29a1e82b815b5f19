"""Video from text, or from text and frames that are given, with Open-Sora 1.2, as a diffusers pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from diffusers.utils.torch_utils import randn_tensor
from diffusers.video_processor import VideoProcessor
from torch import Tensor
from transformers import T5EncoderModel, T5TokenizerFast

from phys_pipeline.errors import ConfigError
from phys_pipeline.models.open_sora_sizes import PICTURE_FPS, evenly_spaced_sigmas, picture_size, timestep_shift
from phys_pipeline.models.open_sora_vae import AutoencoderKLOpenSora, latent_frames
from phys_pipeline.models.stdit3 import STDiT3Transformer3DModel
from phys_pipeline.pipelines.t5_text import encode_t5
from phys_pipeline.pipelines.video_pipeline import Generators, StepEnded, VideoPipeline, VideoPipelineOutput


@dataclass(frozen=True)
class Given:
    """Frames that the model is shown or asked to change.

    ``latents`` (B, C, T', h, w), and ``strength`` (B, T') in 0 to 1: 0 keeps a latent frame, 1 makes it anew, a value between
    starts to change it when the noise has fallen to that level.
    """

    latents: Tensor
    strength: Tensor


class OpenSoraPipeline(VideoPipeline):
    """Open-Sora 1.2 with converted weights (``phys-pipeline convert``).

    Args:
        tokenizer, text_encoder: T5 v1.1 XXL.
        transformer: predicts ``x0 - noise``, the opposite of what diffusers' scheduler steps along.
        vae: makes 5 latents of every 17 frames.
        scheduler: its shift is set for every call, by size and length.
    """

    model_cpu_offload_seq = "text_encoder->transformer->vae"
    _optional_components = ("tokenizer", "text_encoder", "vae")
    _callback_tensor_inputs = ("latents", "prompt_embeds", "prompt_attention_mask")

    def __init__(
        self,
        tokenizer: T5TokenizerFast,
        text_encoder: T5EncoderModel,
        vae: AutoencoderKLOpenSora,
        transformer: STDiT3Transformer3DModel,
        scheduler: FlowMatchEulerDiscreteScheduler,
    ) -> None:
        super().__init__()
        self.register_modules(
            tokenizer=tokenizer, text_encoder=text_encoder, vae=vae, transformer=transformer, scheduler=scheduler
        )
        self.vae_scale_factor = 8 if vae is None else vae.spatial_compression_ratio
        self.video_processor = VideoProcessor(vae_scale_factor=self.vae_scale_factor)

    def encode_prompt(
        self,
        prompt: str | Sequence[str],
        *,
        aesthetic_score: float | None = 6.5,
        motion_score: float | None = None,
        camera_motion: str | None = None,
        clean_caption: bool = True,
        max_sequence_length: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """T5 features (B, L, D) and mask (B, L) of prompts with their scores behind them, as the model's captions had.

        ``max_sequence_length`` is the transformer's by default; its null caption has that length, so no other works. The scores
        stand last: a prompt that is too long loses them.
        """
        length = max_sequence_length or int(self.transformer.config["caption_length"])
        texts = [prompt] if isinstance(prompt, str) else list(prompt)
        behind = "" if aesthetic_score is None else f" aesthetic score: {aesthetic_score:.1f}."
        behind += "" if motion_score is None else f" motion score: {motion_score:.1f}."
        behind += "" if camera_motion is None else f" camera motion: {camera_motion}."
        return encode_t5(self, [text + behind for text in texts], length, clean=clean_caption)

    @torch.no_grad()
    def __call__(
        self,
        prompt: str | list[str] | None = None,
        height: int | None = None,
        width: int | None = None,
        num_frames: int = 51,
        fps: float = 24.0,
        num_inference_steps: int = 30,
        guidance_scale: float = 7.0,
        *,
        resolution: str = "480p",
        aspect_ratio: str = "9:16",
        aesthetic_score: float | None = 6.5,
        motion_score: float | None = None,
        camera_motion: str | None = None,
        clean_caption: bool = True,
        image: Any = None,
        given_latents: Tensor | None = None,
        frame_strength: Tensor | None = None,
        sigmas: list[float] | None = None,
        num_videos_per_prompt: int = 1,
        generator: Generators = None,
        latents: Tensor | None = None,
        prompt_embeds: Tensor | None = None,
        prompt_attention_mask: Tensor | None = None,
        output_type: str = "pil",
        return_dict: bool = True,
        callback_on_step_end: StepEnded | None = None,
        callback_on_step_end_tensor_inputs: Sequence[str] = ("latents",),
    ) -> VideoPipelineOutput | tuple[Any]:
        """Make a video of each prompt.

        Args:
            height, width: pixels; by default those of ``resolution`` and ``aspect_ratio`` (height:width).
            num_frames: 1 for a picture, else at least 17; released lengths are 51, 102, 204 and 408.
            fps: told to the model (a picture is told as 120).
            guidance_scale: above 1 every step also asks with the learned null caption, under the prompt's mask.
            aesthetic_score, motion_score, camera_motion: written behind the prompt, where not None.
            image: a picture that the video starts with.
            given_latents, frame_strength: (B, C, T', h, w) and (B, T'): see :class:`Given`; normalised as the transformer's.
            sigmas: noise levels before the shift, falling from 1; by default evenly spaced.
            latents: start noise (B, C, T', h, w).
            prompt_embeds, prompt_attention_mask: what ``encode_prompt`` gives, instead of a prompt.
            output_type: "pil", "np", "pt" or "latent".
            callback_on_step_end: called as in diffusers' pipelines, and may return changed tensors.

        Raises ConfigError for sizes, lengths and arguments that don't go together.
        """
        if height is None or width is None:
            height, width = picture_size(resolution, aspect_ratio)
        shift = timestep_shift(num_frames, height, width)
        if min(height, width) < self.vae_scale_factor:
            raise ConfigError(f"{width}x{height} pixels: both sides must be at least {self.vae_scale_factor}")
        self._check_call(
            prompt, callback_on_step_end_tensor_inputs, prompt_embeds=prompt_embeds, prompt_attention_mask=prompt_attention_mask
        )
        if prompt is not None:
            prompt_embeds, prompt_attention_mask = self.encode_prompt(
                prompt, aesthetic_score=aesthetic_score, motion_score=motion_score, camera_motion=camera_motion,
                clean_caption=clean_caption,
            )  # fmt: skip
        text, mask = (
            value.to(self._execution_device).repeat_interleave(num_videos_per_prompt, dim=0)  # type: ignore[union-attr]  # checked
            for value in (prompt_embeds, prompt_attention_mask)
        )

        places = (latent_frames(num_frames), height // self.vae_scale_factor, width // self.vae_scale_factor)
        shape = (text.shape[0], int(self.transformer.config["in_channels"]), *places)
        latents = self._start(latents, shape, generator)
        given = self._given(image, given_latents, frame_strength, shape, (height, width))

        latents = self.denoise(
            latents, text, mask,
            height=height, width=width, fps=PICTURE_FPS if num_frames == 1 else fps,
            sigmas=evenly_spaced_sigmas(num_inference_steps) if sigmas is None else sigmas, shift=shift,
            guidance_scale=guidance_scale, given=given, generator=generator,
            step_ended=callback_on_step_end, tensor_names=callback_on_step_end_tensor_inputs,
        )  # fmt: skip
        frames: Any = latents
        if output_type != "latent":
            raw = self.vae.denormalise(latents).to(self.vae.dtype)
            video = self.vae.decode(raw, num_frames=num_frames, return_dict=False)[0]
            frames = self.video_processor.postprocess_video(video.float(), output_type=output_type)
        self.maybe_free_model_hooks()
        return VideoPipelineOutput(frames=frames) if return_dict else (frames,)

    @torch.no_grad()
    def denoise(
        self,
        latents: Tensor,  # (B, C, T', h, w)
        prompt_embeds: Tensor,  # (B, L, D)
        prompt_attention_mask: Tensor,  # (B, L)
        *,
        height: int,
        width: int,
        fps: float,
        sigmas: Sequence[float],
        shift: float,
        guidance_scale: float,
        given: Given | None = None,
        generator: Generators = None,
        step_ended: StepEnded | None = None,
        tensor_names: Sequence[str] = ("latents",),
    ) -> Tensor:
        """The sampling loop: latents (B, C, T', h, w), float32, from noise of the same shape."""
        batch, device = latents.shape[0], latents.device
        # explicit sigmas, shifted once: without them the scheduler shifts a grid that is shifted already
        self.scheduler.set_shift(shift)
        self.scheduler.set_timesteps(sigmas=list(sigmas), device=device)
        guided = guidance_scale > 1
        told = torch.full((1,), float(fps), device=device)
        noised = torch.ones(batch, latents.shape[2], dtype=torch.bool, device=device)
        if given is not None:
            noised = given.strength >= 1
            latents = torch.where(_frames(noised), latents, given.latents)
        tensors: dict[str, Any] = {
            "latents": latents, "prompt_embeds": prompt_embeds, "prompt_attention_mask": prompt_attention_mask,
        }  # fmt: skip
        self._interrupt, self._num_timesteps = False, len(self.scheduler.timesteps)
        with self.progress_bar(total=self._num_timesteps) as bar:
            for step, t in enumerate(self.scheduler.timesteps):
                if self._interrupt:
                    continue
                before = latents = tensors["latents"]
                mask = None
                if given is not None:
                    mask = given.strength * 1000 >= t.clamp(max=1000.0)  # rounding may put the first just above
                    entering = mask & ~noised
                    if bool(entering.any()):
                        s = t / 1000
                        noise = self._noise_of_step(step, latents, generator)
                        before = torch.where(_frames(entering), (1 - s) * latents + s * noise, latents)
                        noised = noised | mask
                text = tensors["prompt_embeds"]
                if guided:
                    text = torch.cat([text, self._no_text(text).expand(batch, -1, -1)])
                rows = text.shape[0] // batch
                output = self.transformer(
                    hidden_states=before.repeat(rows, 1, 1, 1, 1),
                    timestep=t.expand(text.shape[0]),
                    encoder_hidden_states=text,
                    encoder_attention_mask=tensors["prompt_attention_mask"],
                    fps=told,
                    height=height,
                    width=width,
                    frame_mask=None if mask is None else mask.repeat(rows, 1),
                    return_dict=False,
                )[0]
                velocity = output[:, : latents.shape[1]].float()  # the other half was never trained
                if guided:
                    with_prompt, without = velocity.chunk(2)
                    velocity = without + guidance_scale * (with_prompt - without)
                after = self.scheduler.step(-velocity, t, before, return_dict=False)[0]
                tensors["latents"] = after if mask is None else torch.where(_frames(mask), after, before)
                self._step_ended(step_ended, tensor_names, step, t, tensors)
                bar.update()
        return tensors["latents"]

    def _noise_of_step(self, step: int, latents: Tensor, generator: Any) -> Tensor:
        """Noise for frames that begin to change at this step, shaped as ``latents``."""
        return randn_tensor(latents.shape, generator=generator, device=latents.device, dtype=latents.dtype)

    def _no_text(self, like: Tensor) -> Tensor:  # (B, L, D)
        """The learned caption (1, L, D) that stands for no text."""
        caption = self._null_caption()
        if caption.shape[0] != like.shape[1]:
            raise ConfigError(f"prompt_embeds have {like.shape[1]} tokens: this model takes {caption.shape[0]}, padding included")
        return caption.to(like)[None]

    def _given(
        self, image: Any, latents: Tensor | None, strength: Tensor | None, shape: Sequence[int], size: tuple[int, int]
    ) -> Given | None:
        if image is not None and latents is not None:
            raise ConfigError("give an image, or given_latents with frame_strength, not both")
        if (latents is None) != (strength is None):
            raise ConfigError("given_latents and frame_strength go together: give both or none")
        device = self._execution_device
        if image is not None:
            picture = self.video_processor.preprocess(image, *size).to(device, self.vae.dtype)  # (1 or B, 3, H, W) in [-1, 1]
            first = self.vae.normalise(self.vae.encode(picture[:, :, None]).latent_dist.mode())
            latents = torch.zeros(tuple(shape), device=device)
            latents[:, :, :1] = first
            strength = torch.ones(shape[0], shape[2])
            strength[:, 0] = 0
        if latents is None or strength is None:
            return None
        if tuple(latents.shape) != tuple(shape) or tuple(strength.shape) != (shape[0], shape[2]):
            raise ConfigError(
                f"given_latents {tuple(latents.shape)} and frame_strength {tuple(strength.shape)} must have the shapes "
                f"{tuple(shape)} and {(shape[0], shape[2])}"
            )
        return Given(latents.to(device, torch.float32), strength.to(device, torch.float32))


def _frames(mask: Tensor) -> Tensor:  # (B, T')
    """A mask over frames that broadcasts over (B, C, T', h, w)."""
    return mask[:, None, :, None, None]
