"""Ask a denoiser directly what it takes from a caption: its error with the right words, and with one word wrong."""

from __future__ import annotations

from typing import Any

import torch

from phys_pipeline.media.synthetic import COLOURS, MOTIONS, REVERSED, SHAPES, canonical_caption, is_visible_motion, make_clip
from phys_pipeline.noise_path import RectifiedFlow

SIGMA = 0.95  # noisy enough that the caption, not the picture, says what moves where
Subject = tuple[str, str, str]  # colour, shape, motion


def swapped(subject: Subject, part: str) -> Subject:
    """``subject`` with its "colour" or "shape" replaced by the next one, or its "motion" by the opposite one."""
    colour, shape, motion = subject
    if part == "motion":
        return colour, shape, REVERSED[motion]
    if part == "colour":
        names = list(COLOURS)
        return names[(names.index(colour) + 1) % len(names)], shape, motion
    others = [other for other in SHAPES if other != shape and is_visible_motion(other, motion)]
    return colour, others[SHAPES.index(shape) % len(others)], motion


@torch.no_grad()
def caption_gaps(pipe: Any, settings: dict[str, Any], clips: int = 32, seed: int = 0) -> dict[str, float]:
    """Mean velocity error at ``SIGMA`` over ``clips`` moving clips, same noise each time.

    Keys: "right caption", and "wrong motion", "wrong colour", "wrong shape". A word that is understood makes a difference.
    """
    moving = [motion for motion in MOTIONS if motion.startswith("moves")]
    drawn = [
        make_clip((seed, 555, i), settings["num_frames"], settings["height"], settings["width"], motion=moving[i % len(moving)])
        for i in range(clips)
    ]
    subjects: list[Subject] = [(clip.colour, clip.shape, clip.motion) for clip in drawn]
    captions = {"right caption": [canonical_caption(*subject) for subject in subjects]}
    for part in ("motion", "colour", "shape"):
        captions[f"wrong {part}"] = [canonical_caption(*swapped(subject, part)) for subject in subjects]
    path, errors = RectifiedFlow(), dict.fromkeys(captions, 0.0)
    for start in range(0, clips, 8):
        batch = slice(start, min(start + 8, clips))
        pixels = torch.stack([clip.video for clip in drawn[batch]]) * 2 - 1
        latents = pipe.vae.encode(pixels).latent_dist.mode() * pipe.vae.config.scaling_factor
        noise = torch.randn(latents.shape, generator=torch.Generator().manual_seed(seed + start))
        sigma = torch.full((len(latents),), SIGMA)
        guidance = torch.full((len(latents),), 1000.0 * settings["guidance_scale"])
        for name, texts in captions.items():
            states, pooled, mask = pipe.encode_prompt(
                texts[batch], prompt_template=settings["prompt_template"], max_sequence_length=settings["max_sequence_length"]
            )
            velocity = pipe.transformer(
                hidden_states=path.corrupt(latents, noise, sigma), timestep=path.timestep(sigma), guidance=guidance,
                encoder_hidden_states=states, encoder_attention_mask=mask, pooled_projections=pooled, return_dict=False,
            )[0]  # fmt: skip
            error = (velocity - path.target(latents, noise, sigma)).square().mean()
            errors[name] += error.item() * len(latents) / clips
    return errors
