"""Open-Sora 2.0's guidance with three branches, as numbers per step and as their combination."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_FIRST_OSCILLATION = 10  # from this step on, odd steps sample without guidance


@dataclass(frozen=True)
class Guidance:
    """Strengths and habits of the guidance. 1.0 is none.

    ``text`` pulls from the negative to the prompt, ``image`` from nothing given to the given frames. With oscillation, odd steps
    from the tenth on use 1.0. ``temporal_scaling`` lets the image's strength grow over the frames, from 1.0 in the first to the
    step's own, which falls to 1.0 over the run; it needs given frames and an image strength above 1.
    """

    text: float = 7.5
    image: float = 3.0
    text_oscillation: bool = True
    image_oscillation: bool = True
    temporal_scaling: bool = True

    def at(self, step: int, steps: int, latent_frames: int, given: bool) -> tuple[float, float | Tensor]:
        """Text and image strength at ``step`` of ``steps`` (from 0); the image's is (T',) if it differs over the frames.

        Without given frames two of the three branches are equal, so the image's strength doesn't matter and is 1.0.
        """
        quiet = step >= _FIRST_OSCILLATION and step % 2 == 1
        text = 1.0 if quiet and self.text_oscillation else self.text
        image: float | Tensor = 1.0 if (quiet and self.image_oscillation) or not given else self.image
        if self.temporal_scaling and given and image > 1:
            last = torch.linspace(self.image, 1.0, steps + 1)[step].item()
            image = torch.linspace(1.0, last, latent_frames)
        return text, image


def combine(prompt: Tensor, negative: Tensor, ungiven: Tensor, text: float, image: float | Tensor) -> Tensor:
    """``ungiven + image * (negative - ungiven) + text * (prompt - negative)`` of velocities, each (B, C, T', H', W').

    ``prompt`` and ``negative`` were made with the given frames, ``ungiven`` is the negative without them; ``image`` is one number
    or one per latent frame, (T',).
    """
    if isinstance(image, Tensor):
        image = image.to(prompt).view(-1, 1, 1)
    return ungiven + image * (negative - ungiven) + text * (prompt - negative)
