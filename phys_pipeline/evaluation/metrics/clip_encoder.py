"""CLIP's embeddings of frames and texts, loaded once for all metrics that use them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal
from weakref import WeakValueDictionary

import numpy as np

from phys_pipeline.evaluation.clip import DecodedClip
from phys_pipeline.evaluation.metric import Protocols, Settings, Weights
from phys_pipeline.evaluation.metrics.chunks import in_chunks
from phys_pipeline.evaluation.metrics.pixels import (
    BICUBIC,
    CLIP_NORMALISATION,
    aliased,
    center_cropped,
    normalised,
    short_side_scaled,
)
from phys_pipeline.evaluation.pretrained import TOKENIZER_AND_CONFIG, Pretrained, load_model

CLIP_WEIGHTS = Weights(
    "openai/clip-vit-base-patch32", "3d74acf9a28c67741b2f4f2ea7635f0aaf6f0268", 605_000_000,
    "MIT", (*TOKENIZER_AND_CONFIG, "pytorch_model.bin"),
)  # fmt: skip
CLIP = Pretrained(CLIP_WEIGHTS, "clip.model", "clip_score")

# "processor": CLIP's own preparation. EvalCrafter squashes to a square and never normalises: frames stay in 0..255 ("raw"), the
# reference images of its SD-Score in 0..1 ("unit").
Preparation = Literal["processor", "raw", "unit"]
_CHUNK = 64
_LOADED: WeakValueDictionary[tuple[str, str], ClipEncoder] = WeakValueDictionary()


class ClipEncoder:
    """A CLIP model with its tokenizer. Use :func:`clip_encoder`, so that metrics share one.

    Args:
        name: repository and revision, the backend of rows.
    """

    def __init__(self, settings: Settings) -> None:
        from transformers import AutoTokenizer, CLIPModel

        folder = CLIP.folder(settings)
        self.name, self.device = CLIP.name(settings), settings.device
        self.model = load_model(CLIPModel, folder, settings.device)
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.size: int = self.model.config.vision_config.image_size
        self.max_tokens: int = self.model.config.text_config.max_position_embeddings

    def images(self, frames: Sequence[np.ndarray], preparation: Preparation) -> np.ndarray:
        """Unit vectors ``float64 (N, D)`` of ``uint8 (H, W, 3)`` frames of any sizes, in chunks of 64."""
        import torch

        def encode(chunk: Sequence[np.ndarray]) -> np.ndarray:
            with torch.inference_mode():
                return _unit(self.model.get_image_features(self._prepared(chunk, preparation).to(self.device)))

        return np.stack(in_chunks(encode, frames, _CHUNK))

    def texts(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors ``float64 (N, D)``. Texts are cut after the model's last position (:meth:`is_cut`)."""
        import torch

        tokens = self.tokenizer(list(texts), return_tensors="pt", padding=True, truncation=True, max_length=self.max_tokens)
        with torch.inference_mode():
            found = self.model.get_text_features(
                input_ids=tokens["input_ids"].to(self.device), attention_mask=tokens["attention_mask"].to(self.device)
            )
        return _unit(found)

    def is_cut(self, text: str) -> bool:
        """Whether CLIP sees only the beginning of a text."""
        return len(self.tokenizer(text)["input_ids"]) > self.max_tokens

    def _prepared(self, frames: Sequence[np.ndarray], preparation: Preparation) -> Any:
        if preparation == "processor":
            cropped = (center_cropped(short_side_scaled(frame, self.size, BICUBIC), self.size) for frame in frames)
            return normalised(cropped, CLIP_NORMALISATION)
        values = aliased(frames, self.size, self.size)
        return values / 255 if preparation == "unit" else values


def clip_encoder(settings: Settings) -> ClipEncoder:
    """The encoder of a run: the one that another metric holds, or a new one. Raises ModelError."""
    key = CLIP.name(settings), settings.device
    found = _LOADED.get(key)
    if found is None:
        found = _LOADED[key] = ClipEncoder(settings)
    return found


def frame_preparation(protocol: Protocols) -> Preparation:
    """How a protocol prepares frames."""
    return "raw" if protocol == "evalcrafter" else "processor"


def frame_embeddings(clip: DecodedClip, encoder: ClipEncoder, protocol: Protocols) -> np.ndarray:
    """Unit vectors ``(T, D)`` of a clip's frames; one pass for all metrics of the clip."""
    preparation = frame_preparation(protocol)
    return clip.shared(f"{encoder.name} {preparation}", lambda: encoder.images(list(clip.frames), preparation))


def _unit(output: Any) -> np.ndarray:
    """Transformers 5 wraps the projected embeddings in an output object, transformers 4 returns them bare."""
    vectors = getattr(output, "pooler_output", output).double().cpu().numpy()
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
