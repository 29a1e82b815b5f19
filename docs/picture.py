"""Make docs/comparison.png, the README's picture: first and last frame of the comparison that `make demo` wrote, stacked.

python docs/picture.py [out/demo/comparison.mp4]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from phys_pipeline.media import Video, read_video, write_video

video = read_video(sys.argv[1] if len(sys.argv) > 1 else "out/demo/comparison.mp4")
both = np.concatenate([video.frames[0], video.frames[-1]])  # (2 H, W, 3)
write_video(Path(__file__).parent / "comparison.png", Video.from_frames(both[None], fps=1))
