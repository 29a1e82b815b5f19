"""Make docs/comparison.png, the README's picture: the middle frame of the comparison that `make demo` wrote.

python docs/picture.py [out/demo/comparison.mp4]
"""

from __future__ import annotations

import sys
from pathlib import Path

from phys_pipeline.media import Video, read_video, write_video

video = read_video(sys.argv[1] if len(sys.argv) > 1 else "out/demo/comparison.mp4")
middle = len(video) // 2
write_video(Path(__file__).parent / "comparison.png", Video.from_frames(video.frames[middle : middle + 1], fps=1))
