"""Video in, video out: reading, writing, score overlays, comparisons, corruptions and synthetic clips.

Importing this package loads no torch; ``corrupt`` and ``CORRUPTIONS`` are resolved on first use.
"""

from __future__ import annotations

from typing import Any

from phys_pipeline.media.compare import side_by_side
from phys_pipeline.media.overlay import overlay
from phys_pipeline.media.reading import probe, read_video
from phys_pipeline.media.video import Video, VideoInfo, resample
from phys_pipeline.media.writing import write_video

__all__ = [
    "CORRUPTIONS",
    "Video",
    "VideoInfo",
    "corrupt",
    "overlay",
    "probe",
    "read_video",
    "resample",
    "side_by_side",
    "write_video",
]


def __getattr__(name: str) -> Any:
    if name in ("CORRUPTIONS", "corrupt"):
        from phys_pipeline.media import corruptions

        return getattr(corruptions, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
