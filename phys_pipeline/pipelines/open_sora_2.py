"""Open-Sora 2.0 as a diffusers pipeline: video from text, and from a first or last picture."""

from __future__ import annotations

from typing import Any

import torch
from diffusers import AutoencoderKLHunyuanVideo, FlowMatchEulerDiscreteScheduler, FluxTransformer2DModel
from diffusers.video_processor import VideoProcessor
from torch import Tensor
from transformers import CLIPTextModel, CLIPTokenizer, T5EncoderModel, T5Tokenizer

from phys_pipeline.errors import ConfigError
from phys_pipeline.models.open_sora_2 import (
    PATCH,
    SIZE_MULTIPLE,
    check_frames,
    condition,
    described,
    flow_shift,
    pack,
    positions,
    unpack,
)
from phys_pipeline.pipelines.open_sora_2_guidance import Guidance, combine
from phys_pipeline.pipelines.video_pipeline import Generators, StepEnded, VideoPipeline, VideoPipelineOutput


class OpenSora2Pipeline(VideoPipeline):
    """Text- and image-to-video with Open-Sora 2.0's transformer in diffusers' Flux layout (``phys-pipeline convert``).

    Args:
        text_encoder, tokenizer: T5 v1.1 XXL. Its padding is not masked: all 512 embeddings are read.
        text_encoder_2, tokenizer_2: CLIP-L, whose pooled output is used.
        transformer: with ``in_channels`` of the latents' and the condition's tokens together (132).
        vae: HunyuanVideo's autoencoder.
        scheduler: the pipeline sets its shift from the size of each video.
    """

    model_cpu_offload_seq = "text_encoder->text_encoder_2->transformer->vae"
    _optional_components = ("text_encoder", "tokenizer", "text_encoder_2", "tokenizer_2")
    _callback_tensor_inputs = (
        "latents", "prompt_embeds", "pooled_prompt_embeds", "negative_prompt_embeds", "negative_pooled_prompt_embeds",
    )  # fmt: skip

    def __init__(
        self,
        text_encoder: T5EncoderModel,
        tokenizer: T5Tokenizer,
        text_encoder_2: CLIPTextModel,
        tokenizer_2: CLIPTokenizer,
        transformer: FluxTransformer2DModel,
        vae: AutoencoderKLHunyuanVideo,
        scheduler: FlowMatchEulerDiscreteScheduler,
    ) -> None:
        super().__init__()
        self.register_modules(
            text_encoder=text_encoder, tokenizer=tokenizer, text_encoder_2=text_encoder_2, tokenizer_2=tokenizer_2,
            transformer=transformer, vae=vae, scheduler=scheduler,
        )  # fmt: skip
        self.vae_scale_factor = getattr(vae, "spatial_compression_ratio", 8)
        self.vae_scale_factor_temporal = getattr(vae, "temporal_compression_ratio", 4)
        self.video_processor = VideoProcessor(vae_scale_factor=self.vae_scale_factor)
        self._guidance = Guidance()

    @property
    def guidance_scale(self) -> float:
        return self._guidance.text

    @property
    def image_guidance_scale(self) -> float:
        return self._guidance.image

    @torch.no_grad()
    def encode_prompt(self, prompt: str | list[str], max_sequence_length: int = 512) -> tuple[Tensor, Tensor]:
        """T5's embeddings (B, L, D) of the prompts with their padding, and CLIP's pooled (B, P). Prompts stay as they are."""
        prompts, device = _listed(prompt), self._execution_device

        def tokens(tokenizer: Any, length: int) -> Tensor:
            options = {"padding": "max_length", "truncation": True, "max_length": length, "return_tensors": "pt"}
            return tokenizer(prompts, **options).input_ids.to(device)

        embeds = self.text_encoder(tokens(self.tokenizer, max_sequence_length), attention_mask=None)[0]
        length = min(self.tokenizer_2.model_max_length, 77)
        pooled = self.text_encoder_2(tokens(self.tokenizer_2, length)).pooler_output
        return embeds, pooled

    @torch.no_grad()
    def __call__(
        self,
        prompt: str | list[str] | None = None,
        negative_prompt: str | list[str] = "",
        image: Any = None,
        last_image: Any = None,
        height: int = 192,
        width: int = 336,
        num_frames: int = 129,
        num_inference_steps: int = 50,
        guidance_scale: float = 7.5,
        image_guidance_scale: float = 3.0,
        text_oscillation: bool = True,
        image_oscillation: bool = True,
        temporal_scaling: bool = True,
        shift: float | None = None,
        fps: float | None = 24,
        motion_score: float | None = 4,
        num_videos_per_prompt: int = 1,
        generator: Generators = None,
        latents: Tensor | None = None,  # (B, C, T', H', W')
        given_latents: Tensor | None = None,  # (1 or B, C, T', H', W')
        given_mask: Tensor | None = None,  # (1 or B, 1, T', H', W')
        prompt_embeds: Tensor | None = None,  # (B, L, D)
        pooled_prompt_embeds: Tensor | None = None,  # (B, P)
        negative_prompt_embeds: Tensor | None = None,  # (B, L, D)
        negative_pooled_prompt_embeds: Tensor | None = None,  # (B, P)
        max_sequence_length: int = 512,
        output_type: str = "pil",
        return_dict: bool = True,
        joint_attention_kwargs: dict[str, Any] | None = None,
        callback_on_step_end: StepEnded | None = None,
        callback_on_step_end_tensor_inputs: tuple[str, ...] | list[str] = ("latents",),
    ) -> VideoPipelineOutput | tuple[Any]:
        """Generate videos.

        Args:
            prompt: gets the frame rate ``fps`` and ``motion_score`` appended, as the model was trained to read (None: not told);
                the negative prompt doesn't. Embeddings are taken as they are.
            image, last_image: pictures to begin and end with; resized to the video's size. Their latent frames are written back
                after the last step.
            guidance_scale, image_guidance_scale, text_oscillation, image_oscillation, temporal_scaling: as in :class:`Guidance`.
            shift: of the timesteps; None: from the size (``video_shift``).
            latents: noise to start from, float32.
            given_latents, given_mask: normalised latents that are given, and 1 where they are; instead of pictures.
            output_type: "pil", "np", "pt" or "latent" (normalised latents).
            callback_on_step_end: ``(pipeline, step, timestep, tensors) -> tensors``; "latents" are (B, C, T', H', W').

        Raises ConfigError for sizes that the model can't make and arguments that don't go together.
        """
        self._check_call(
            prompt, callback_on_step_end_tensor_inputs, prompt_embeds=prompt_embeds, pooled_prompt_embeds=pooled_prompt_embeds
        )
        check_frames(num_frames)
        if height % SIZE_MULTIPLE or width % SIZE_MULTIPLE or min(height, width) < SIZE_MULTIPLE:
            raise ConfigError(f"{height}x{width} pixels: both sides must be multiples of {SIZE_MULTIPLE}")
        if (negative_prompt_embeds is None) != (negative_pooled_prompt_embeds is None):
            raise ConfigError("pass negative_prompt_embeds and negative_pooled_prompt_embeds together")
        self._guidance = Guidance(guidance_scale, image_guidance_scale, text_oscillation, image_oscillation, temporal_scaling)
        self._interrupt = False
        device, dtype = self._execution_device, self.transformer.dtype

        if prompt is not None:
            prompts = [described(text, fps, motion_score) for text in _listed(prompt)]
            prompt_embeds, pooled_prompt_embeds = self.encode_prompt(prompts, max_sequence_length)

        def of_every_video(value: Tensor | None) -> Tensor | None:
            return None if value is None else value.repeat_interleave(num_videos_per_prompt, dim=0)

        tensors: dict[str, Any] = {
            "prompt_embeds": of_every_video(prompt_embeds), "pooled_prompt_embeds": of_every_video(pooled_prompt_embeds),
        }  # fmt: skip
        batch = len(tensors["prompt_embeds"])
        negatives = (of_every_video(negative_prompt_embeds), of_every_video(negative_pooled_prompt_embeds))
        given = any(x is not None for x in (image, last_image, given_latents))
        if guidance_scale == 1 and (image_guidance_scale == 1 or not given):  # only the prompt's branch is used
            negatives = (None, None)
        elif negative_prompt_embeds is None:
            texts = _listed(negative_prompt)
            if batch % len(texts):
                raise ConfigError(f"{len(texts)} negative prompts for {batch} videos: give one, or one per prompt")
            negatives = self.encode_prompt([text for text in texts for _ in range(batch // len(texts))], max_sequence_length)
        tensors |= {"negative_prompt_embeds": negatives[0], "negative_pooled_prompt_embeds": negatives[1]}
        for name, value in tensors.items():
            if value is not None and len(value) != batch:
                raise ConfigError(f"{name} has {len(value)} rows for {batch} videos: give one per video")

        times = (num_frames - 1) // self.vae_scale_factor_temporal + 1
        rows, columns = height // self.vae_scale_factor, width // self.vae_scale_factor
        shape = (batch, self.transformer.config.out_channels // PATCH**2, times, rows, columns)
        tensors["latents"] = latents = self._start(latents, shape, generator)
        if image is not None or last_image is not None:
            if given_latents is not None:
                raise ConfigError("pictures and given latents together: pass one of the two")
            given_latents, given_mask = self._encode_pictures(image, last_image, latents[:1], height, width)
        both = condition(latents, given_latents, given_mask)
        packed, nothing = pack(both), torch.zeros_like(pack(both))

        self.scheduler.set_shift(flow_shift(rows * columns // PATCH**2, times) if shift is None else shift)
        self.scheduler.set_timesteps(sigmas=[1 - i / num_inference_steps for i in range(num_inference_steps)], device=device)
        self.scheduler.set_begin_index(0)
        self._num_timesteps = len(self.scheduler.timesteps)
        places = positions(times, rows, columns, device=device)

        def velocity(side: str, conditions: Tensor, sigma: Tensor) -> Tensor:  # (B, tokens, 4C + 4), ()
            text = tensors[f"{side}prompt_embeds"].to(device, dtype)
            tokens = self.transformer(
                hidden_states=torch.cat([pack(tensors["latents"]), conditions], dim=-1).to(dtype),
                timestep=sigma.expand(batch),
                encoder_hidden_states=text,
                pooled_projections=tensors[f"{side}pooled_prompt_embeds"].to(device, dtype),
                img_ids=places,
                txt_ids=torch.zeros(text.shape[1], 3, device=device),  # a negative may have another number of tokens
                joint_attention_kwargs=joint_attention_kwargs,
                return_dict=False,
            )[0]
            return unpack(tokens.float(), times, rows, columns)

        with self.progress_bar(total=self._num_timesteps) as progress:
            for step, timestep in enumerate(self.scheduler.timesteps):
                if self._interrupt:
                    continue
                text, picture = self._guidance.at(step, self._num_timesteps, times, given)
                sigma = self.scheduler.sigmas[step]
                total = velocity("", packed, sigma)
                two_are_equal = not isinstance(picture, Tensor) and picture == 1  # with and without given frames
                if text != 1 or not two_are_equal:
                    negative = velocity("negative_", packed, sigma)
                    ungiven = negative if two_are_equal else velocity("negative_", nothing, sigma)
                    total = combine(total, negative, ungiven, text, picture)
                tensors["latents"] = self.scheduler.step(total, timestep, tensors["latents"], return_dict=False)[0]
                self._step_ended(callback_on_step_end, callback_on_step_end_tensor_inputs, step, timestep, tensors)
                progress.update()

        frames: Any = torch.where(both[:, :1] > 0, both[:, 1:], tensors["latents"])
        if output_type != "latent":
            decoded = self.vae.decode((frames / self.vae.config.scaling_factor).to(self.vae.dtype), return_dict=False)[0]
            frames = self.video_processor.postprocess_video(decoded, output_type=output_type)
        self.maybe_free_model_hooks()
        return VideoPipelineOutput(frames=frames) if return_dict else (frames,)

    def _encode_pictures(
        self, image: Any, last_image: Any, like: Tensor, height: int, width: int
    ) -> tuple[Tensor, Tensor]:  # like: (1, C, T', H', W')
        """Latents with the pictures' in the first and last frame, and the mask of those frames."""
        latents, mask = torch.zeros_like(like), torch.zeros_like(like[:, :1])
        if image is not None and last_image is not None and like.shape[2] < 2:
            raise ConfigError("one frame can't begin and end with a picture of its own: use at least 5 frames")
        for picture, place in ((image, 0), (last_image, -1)):
            if picture is not None:
                pixels = self.video_processor.preprocess(picture, height=height, width=width)[:1]
                encoded = self.vae.encode(pixels[:, :, None].to(like.device, self.vae.dtype)).latent_dist.mode()
                latents[:, :, place] = encoded[:, :, 0].to(latents) * self.vae.config.scaling_factor
                mask[:, :, place] = 1
        return latents, mask


def _listed(texts: str | list[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else list(texts)
