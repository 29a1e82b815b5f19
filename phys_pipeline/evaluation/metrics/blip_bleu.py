"""BLIP-BLEU: caption five frames, compare the captions with the prompt. Captions stay in the row, so it can be rescored.

EvalCrafter (1275bda) shows the captioner frames with red and blue exchanged, squashed without antialiasing, and its BLEU-1..4 are
all BLEU-1 (:func:`phys_pipeline.evaluation.metrics.bleu.evalcrafter_bleu`); protocol "evalcrafter" repeats that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from phys_pipeline.evaluation.clip import DecodedClip
from phys_pipeline.evaluation.metric import Availability, MetricInfo, MetricResult, Protocols, Settings, Weights, skipped
from phys_pipeline.evaluation.metrics.bleu import evalcrafter_bleu, prompt_bleu
from phys_pipeline.evaluation.metrics.chunks import in_chunks
from phys_pipeline.evaluation.metrics.pixels import BICUBIC, CLIP_NORMALISATION, aliased, normalised, squashed
from phys_pipeline.evaluation.pretrained import TOKENIZER_AND_CONFIG, Pretrained, load_model

BLIP2_WEIGHTS = Weights(
    "Salesforce/blip2-opt-2.7b", "59a1ef6c1e5117b3f65523d1c6066825bcf315e3", 14_979_000_000,
    "MIT; its OPT part: Meta's OPT licence", (*TOKENIZER_AND_CONFIG, "*.safetensors"),
)  # fmt: skip
BLIP_WEIGHTS = Weights(
    "Salesforce/blip-image-captioning-base", "82a37760796d32b1411fe092ab5d4e227313294b", 990_000_000,
    "BSD-3-Clause", (*TOKENIZER_AND_CONFIG, "pytorch_model.bin"),
)  # fmt: skip
FRAMES = 5
_TOKENS = 20  # of a caption, as transformers' generate() made when EvalCrafter was written


def rescored(captions: Sequence[str], prompt: str, protocol: Protocols) -> float:
    """BLIP-BLEU x 100 of captions that a row holds (``details["captions"]``)."""
    return 100 * (evalcrafter_bleu if protocol == "evalcrafter" else prompt_bleu)(captions, prompt)


class _CaptionBleu:
    """Captions by one model; subclasses name the model and its class in transformers."""

    infos: ClassVar[tuple[MetricInfo, ...]]
    pretrained: ClassVar[Pretrained]
    model_class: ClassVar[str]

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._model: Any = None
        self._tokenizer: Any = None

    def available(self) -> Availability:
        return self.pretrained.available(self.settings)

    def setup(self) -> None:
        import transformers

        folder = self.pretrained.folder(self.settings)
        dtype = "float16" if self.settings.device.startswith("cuda") else "float32"
        self._model = load_model(getattr(transformers, self.model_class), folder, self.settings.device, dtype)
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def close(self) -> None:
        self._model = self._tokenizer = None

    def compute(self, clip: DecodedClip) -> Mapping[str, MetricResult]:
        key = self.infos[0].key
        if not clip.sample.prompt:
            return {key: skipped("the sample has no prompt")}
        indices = np.linspace(0, len(clip.frames) - 1, FRAMES)
        indices = (np.floor(indices) if self.settings.protocol == "evalcrafter" else np.rint(indices)).astype(int)
        captions = in_chunks(self.captions, clip.frames[indices], FRAMES)
        details = {"captions": captions, "frames": indices.tolist()}
        value = rescored(captions, clip.sample.prompt, self.settings.protocol)
        return {key: MetricResult(value, details=details, backend=self.pretrained.name(self.settings))}

    def captions(self, frames: np.ndarray) -> list[str]:
        """One caption for each of ``uint8 (N, H, W, 3)``: the likeliest token at each step, at most 20."""
        import torch

        size = self._model.config.vision_config.image_size
        if self.settings.protocol == "evalcrafter":
            pictures = aliased(list(frames[..., ::-1]), size, size).permute(0, 2, 3, 1).round().byte().numpy()
        else:
            pictures = np.stack([squashed(frame, size, BICUBIC) for frame in frames])
        pixels = normalised(pictures, CLIP_NORMALISATION).to(self.settings.device, self._model.dtype)
        with torch.inference_mode():
            tokens = self._model.generate(pixel_values=pixels, max_new_tokens=_TOKENS, do_sample=False, num_beams=1)
        config = self._model.config
        prompt = {getattr(config, "image_token_index", None), config.text_config.bos_token_id}  # repeated before the caption
        rows = [[token for token in row if token not in prompt] for row in tokens.tolist()]
        return [text.strip() for text in self._tokenizer.batch_decode(rows, skip_special_tokens=True)]


class BlipBleu(_CaptionBleu):
    """``blip_bleu``, captions by BLIP-2 with OPT 2.7B as in EvalCrafter."""

    infos = (
        MetricInfo(
            "blip_bleu", "BLIP-BLEU", "BLEU x 100", "up", ("paper", "text"),
            "Mean of BLEU-1..4 of the best of five BLIP-2 captions against the prompt.",
            low=0, high=100, min_frames=1, weights=(BLIP2_WEIGHTS,),
        ),
    )  # fmt: skip
    pretrained = Pretrained(BLIP2_WEIGHTS, "blip_bleu.model", "blip_bleu")
    model_class = "Blip2ForConditionalGeneration"


class BlipBaseBleu(_CaptionBleu):
    """``blip_base_bleu``, the same with a captioner of a tenth the size; its values do not compare with ``blip_bleu``'s."""

    infos = (
        MetricInfo(
            "blip_base_bleu", "BLIP-base BLEU", "BLEU x 100", "up", ("text",),
            "As BLIP-BLEU, with the small captioner blip-image-captioning-base.",
            low=0, high=100, min_frames=1, weights=(BLIP_WEIGHTS,),
        ),
    )  # fmt: skip
    pretrained = Pretrained(BLIP_WEIGHTS, "blip_base_bleu.model", "blip_base_bleu")
    model_class = "BlipForConditionalGeneration"
