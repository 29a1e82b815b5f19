"""Models that phys-pipeline brings along; names are resolved on first use, so that importing this package loads no torch."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_EXPORTS = {
    "AutoencoderKLOpenSora": "phys_pipeline.models.open_sora_vae",
    "FrameAutoencoder": "phys_pipeline.models.frame_autoencoder",
    "MVDiTTransformer3DModel": "phys_pipeline.models.mvdit",
    "STDiT3Transformer3DModel": "phys_pipeline.models.stdit3",
}

__all__ = list(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
