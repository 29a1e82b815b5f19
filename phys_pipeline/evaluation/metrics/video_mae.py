"""Action recognition: what a video classifier sees, compared with the prompt's action by CLIP's text embedding.

EvalCrafter (1275bda) uses VideoMAE V2 in mmaction2; here it is VideoMAE V1 from transformers, so values compare within one
backbone only. 5 clips of 16 frames, stride 4, with 3 crops each; softmax averaged over the views; sum over the top 5 of the 400
labels of probability times cosine. A still picture can score well. A clip shorter than 61 frames is continued: played back and
forth in protocol "fixed", started again in "evalcrafter".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from phys_pipeline.errors import ModelError
from phys_pipeline.evaluation.clip import DecodedClip
from phys_pipeline.evaluation.metric import Availability, MetricInfo, MetricResult, Protocols, Settings, Weights, skipped
from phys_pipeline.evaluation.metrics.chunks import in_chunks
from phys_pipeline.evaluation.metrics.clip_encoder import CLIP, CLIP_WEIGHTS, ClipEncoder, clip_encoder
from phys_pipeline.evaluation.metrics.indices import reflected
from phys_pipeline.evaluation.metrics.pixels import (
    BILINEAR,
    IMAGENET_NORMALISATION,
    Normalisation,
    aliased,
    normalised,
    short_side_scaled,
)
from phys_pipeline.evaluation.pretrained import TOKENIZER_AND_CONFIG, Pretrained, load_model

VIDEOMAE_WEIGHTS = Weights(
    "MCG-NJU/videomae-base-finetuned-kinetics", "488eb9a0565f257b32866000305c8178965eb9f6", 346_000_000,
    "CC-BY-NC-4.0", (*TOKENIZER_AND_CONFIG, "*.safetensors"),
)  # fmt: skip
VIDEOMAE = Pretrained(VIDEOMAE_WEIGHTS, "action_recognition.model", "action_recognition")
STRIDE, CLIPS, TOP = 4, 5, 5
_CHUNK = 3  # views of 16 frames in one pass


def clip_indices(frames: int, length: int, protocol: Protocols) -> np.ndarray:
    """Frame numbers ``(5, length)`` of evenly spaced clips of ``length`` frames, stride 4, as mmaction2 places them."""
    steps = np.arange(length) * STRIDE
    starts = np.rint(np.linspace(0, max(frames - steps[-1] - 1, 0), CLIPS)).astype(int)
    numbers = starts[:, None] + steps
    return numbers % frames if protocol == "evalcrafter" else reflected(numbers, frames)


def crops(height: int, width: int) -> list[tuple[int, int]]:
    """Top left corners of square crops of the short side: both ends and the middle of the long side; one if there is no room."""
    step = abs(height - width) // 2
    places = sorted({0, step, 2 * step})
    return [(place, 0) if height > width else (0, place) for place in places]


class ActionRecognition:
    """``action_recognition``; needs the sample's label ``action``."""

    infos: ClassVar[tuple[MetricInfo, ...]] = (
        MetricInfo(
            "action_recognition", "Action Recognition Score", "0-100", "up", ("paper", "motion"),
            "Probability of VideoMAE's five likeliest labels times their CLIP cosine with the action's name, summed.",
            low=-100, high=100, weights=(VIDEOMAE_WEIGHTS, CLIP_WEIGHTS),
        ),
    )  # fmt: skip

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._model: Any = None
        self._normalisation = IMAGENET_NORMALISATION
        self._encoder: ClipEncoder | None = None

    def available(self) -> Availability:
        found = [part.available(self.settings) for part in (VIDEOMAE, CLIP)]
        return Availability(all(part.ok for part in found), "; ".join(part.reason for part in found if part.reason))

    def setup(self) -> None:
        from transformers import VideoMAEForVideoClassification

        folder = VIDEOMAE.folder(self.settings)
        self._model = load_model(VideoMAEForVideoClassification, folder, self.settings.device)
        self._normalisation = _normalisation(folder)
        self._encoder = clip_encoder(self.settings)

    def close(self) -> None:
        self._model = self._encoder = None

    def compute(self, clip: DecodedClip) -> Mapping[str, MetricResult]:
        assert self._encoder is not None, "setup() comes first"
        action = clip.sample.labels.get("action", "")
        if not action:
            return {"action_recognition": skipped("the sample has no label 'action'")}
        probabilities = self.probabilities(clip.frames)
        best = np.argsort(-probabilities, kind="stable")[:TOP]
        labels = [str(self._model.config.id2label[int(index)]) for index in best]
        cosines = self._encoder.texts(labels) @ self._encoder.texts([action])[0]
        details = {
            "labels": labels,
            "probabilities": probabilities[best].tolist(),
            "cosines": cosines.tolist(),
            "short": len(clip.frames) < self._span,
        }
        value = 100 * float(np.clip(probabilities[best] @ cosines, -1, 1))
        backend = f"{VIDEOMAE.name(self.settings)} + {self._encoder.name}"
        return {"action_recognition": MetricResult(value, details=details, backend=backend)}

    def probabilities(self, frames: np.ndarray) -> np.ndarray:
        """The classifier's probabilities ``(labels,)`` of ``uint8 (T, H, W, 3)``, averaged over clips and crops."""
        import torch

        size: int = self._model.config.image_size
        numbers = clip_indices(len(frames), self._model.config.num_frames, self.settings.protocol)
        numbers, counts = np.unique(numbers, axis=0, return_counts=True)  # the clips of a short video are the same
        pictures = {int(i): self._scaled(frames[i], size) for i in np.unique(numbers)}
        corners = crops(*next(iter(pictures.values())).shape[:2])
        views = [(row, corner) for row in numbers for corner in corners]

        def classify(chunk: Sequence[tuple[np.ndarray, tuple[int, int]]]) -> np.ndarray:
            videos = [
                normalised((pictures[int(i)][top : top + size, left : left + size] for i in row), self._normalisation)
                for row, (top, left) in chunk
            ]
            with torch.inference_mode():
                logits = self._model(pixel_values=torch.stack(videos).to(self.settings.device)).logits
            return logits.double().softmax(-1).cpu().numpy()

        return np.average(in_chunks(classify, views, _CHUNK), axis=0, weights=np.repeat(counts, len(corners)))

    @property
    def _span(self) -> int:
        return (self._model.config.num_frames - 1) * STRIDE + 1

    def _scaled(self, frame: np.ndarray, size: int) -> np.ndarray:
        """The short side scaled to ``size``; mmaction2 scales without antialiasing."""
        if self.settings.protocol == "fixed":
            return short_side_scaled(frame, size, BILINEAR)
        height, width = frame.shape[:2]
        short = min(height, width)
        scaled = aliased([frame], int(height * size / short + 0.5), int(width * size / short + 0.5))
        return scaled[0].permute(1, 2, 0).round().byte().numpy()


def _normalisation(folder: Path) -> Normalisation:
    """The mean and deviation that the model was trained with, from its own file; ImageNet's if it has none. Raises ModelError."""
    file = folder / "preprocessor_config.json"
    if not file.is_file():
        return IMAGENET_NORMALISATION
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        (a, b, c), (d, e, f) = content["image_mean"], content["image_std"]
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{file} has no image_mean and image_std of three numbers: fetch the model again") from error
    return (float(a), float(b), float(c)), (float(d), float(e), float(f))
