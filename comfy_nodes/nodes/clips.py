"""IMAGE and VIDEO inputs as clips that phys_pipeline scores and composes, and back."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import comfy.model_management as memory
import torch
from comfy_api.latest import Input, InputImpl, Types

from phys_pipeline.errors import MediaError
from phys_pipeline.media.batch import ImageBatch, Step, images_of
from phys_pipeline.media.video import Clip
from phys_pipeline.media.writing import exact_rate


def pictures_of(images: torch.Tensor | None, video: Input.Video | None, fps: float, what: str) -> tuple[torch.Tensor, float, Any]:
    """Frames (B, H, W, C) and rate of whichever is connected, and the sound of a VIDEO. MediaError if none or both are."""
    if (images is None) == (video is None):
        count = "nothing" if images is None else "both IMAGE and VIDEO"
        raise MediaError(f"{what} has {count} connected: connect either an IMAGE or a VIDEO")
    if images is not None:
        return images, fps, None
    parts = video.get_components()
    return parts.images, float(parts.frame_rate), parts.audio


def clip_of(images: torch.Tensor, fps: float, source: str = "", each: Step | None = None) -> ImageBatch:
    """A clip over a batch. MediaError, worded for a node, if there is no picture in it."""
    if images.ndim != 4 or len(images) == 0:
        raise MediaError(
            f"{source or 'the input'} holds no picture (its shape is {tuple(images.shape)}): check the node before it"
        )
    return ImageBatch(images, fps, source, each)


def image_of(clip: Clip, each: Step | None = None) -> torch.Tensor:
    """A clip as IMAGE where ComfyUI keeps pictures. MediaError if there is no room: a system without any ends the server."""
    device, needed = memory.intermediate_device(), 12 * len(clip) * clip.height * clip.width
    memory.free_memory(needed, device)  # of models, if it is short
    if needed > (free := memory.get_free_memory(device)):
        raise MediaError(
            f"{len(clip)} pictures of {clip.width}x{clip.height} take {needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are free: "
            "use fewer or smaller ones"
        )
    return images_of(clip, device=device, each=each)


def video_of(images: torch.Tensor, fps: float, audio: Any = None) -> Input.Video:
    """A VIDEO over the same frames; 23.976 becomes 24000/1001."""
    rate: Fraction = exact_rate(fps)
    return InputImpl.VideoFromComponents(Types.VideoComponents(images=images, frame_rate=rate, audio=audio))
