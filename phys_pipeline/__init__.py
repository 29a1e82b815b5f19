"""phys-pipeline: measure and train physically plausible motion in generated video.

Importing this package loads no torch; names below are resolved on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_EXPORTS = {
    "SpectralConfig": "phys_pipeline.spectral",
    "SpectralMotionLoss": "phys_pipeline.spectral",
    "analyze": "phys_pipeline.spectral",
    "FrameAutoencoder": "phys_pipeline.models",
    "generate_pair": "phys_pipeline.pipelines.ab",
    # model_index.json names ["phys_pipeline", "FrameAutoencoder"]; diffusers loads such a part if this module has its base class
    "ModelMixin": "diffusers",
}

__all__ = ["__version__", *_EXPORTS]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
