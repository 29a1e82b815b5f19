"""Frames per second of the score overlay against redrawing the whole panel for each frame, in one run.

    python benchmarks/overlay_speed.py [--frames 240] [--height 480] [--width 720] [--repeats 5]

Prints both rates (medians of the repeats) and their ratio, and writes them to out/benchmarks/overlay_speed.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from phys_pipeline.atomic import atomic_file
from phys_pipeline.media import Video, overlay
from phys_pipeline.media.overlay import Layout
from phys_pipeline.media.panel import render_panel
from phys_pipeline.media.text import BACKGROUND, TEXT
from phys_pipeline.media.timeline import cursor_column, cursor_rows, render_strip, window_edges


def synthetic_report(duration: float, windows: int) -> dict[str, Any]:
    """A report with one timeline entry for every eight frames, all different."""

    def entry(index: int) -> dict[str, Any]:
        loss = 0.5 + 0.4 * math.sin(index / 3)
        return {
            "start_s": duration * index / (windows + 1),
            "end_s": duration * (index + 2) / (windows + 1),
            "composite": loss,
            "translation": loss,
            "rotation": 1 - loss,
            "scaling": loss / 2,
            "dynamic_degree": 0.3,
            "velocity": {"x_percent_per_s": 10 * loss, "y_percent_per_s": 3.0},
            "rotation_deg_per_s": 20 * loss - 10,
            "zoom_percent_per_s": 4.0 - 9 * loss,
        }

    return {
        "schema": "phys-pipeline/motion-report",
        "source": "benchmark.mp4",
        "loss": {"composite": 0.4, "translation": 0.5, "rotation": 0.4, "scaling": 0.3},
        "weights": {"translation": 0.2, "rotation": 0.3, "scaling": 0.5},
        "dominant": "scaling",
        "is_static": False,
        "timeline": [entry(index) for index in range(windows)],
    }


def redraw_each_frame(video: Video, report: dict[str, Any]) -> Video:
    """The straightforward way, with the same picture as result: Pillow draws panel, strip and cursor anew for each frame."""
    layout, timeline, duration = Layout(video.height, video.width), report["timeline"], video.duration
    edges = window_edges(timeline, duration)
    frames = []
    for picture, seconds in zip(video.frames, video.timestamps, strict=True):
        window = min(len(timeline) - 1, max(0, int(np.searchsorted(edges, seconds + 1e-9, side="right")) - 1))
        canvas = Image.new("RGB", (layout.width, layout.height), BACKGROUND)
        canvas.paste(Image.fromarray(picture), (0, layout.picture_top))
        panel = render_panel(report, timeline[window], report["source"], layout.content_height, layout.scale)
        canvas.paste(Image.fromarray(panel), (layout.width - panel.shape[1], 0))
        strip = render_strip(timeline, duration, layout.width, layout.height - layout.content_height, layout.scale)
        canvas.paste(Image.fromarray(strip), (0, layout.content_height))
        column, (top, bottom) = cursor_column(float(seconds), duration, layout.width, layout.scale), cursor_rows(layout.scale)
        half, draw = max(1, round(layout.scale)), ImageDraw.Draw(canvas)
        for reach, colour in ((2 * half, BACKGROUND), (half, TEXT)):
            rows = (layout.content_height + top, layout.content_height + bottom - 1)
            draw.rectangle((column - reach, rows[0], column + reach - 1, rows[1]), fill=colour)
        frames.append(np.asarray(canvas))
    return Video(np.stack(frames), video.timestamps, video.fps, video.source)


def seconds_of(function: Callable[[], Any]) -> tuple[float, float]:
    """Wall-clock and processor seconds of one call."""
    wall, processor = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - wall, time.process_time() - processor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=240)
    parser.add_argument("--height", type=int, default=480)
    parser.add_argument("--width", type=int, default=720)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path("out/benchmarks/overlay_speed.json"))
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    tile = rng.integers(0, 256, (options.height, options.width, 3), dtype=np.uint8)
    video = Video.from_frames(np.stack([np.roll(tile, 3 * k, 1) for k in range(options.frames)]), 30.0, "benchmark.mp4")
    report = synthetic_report(video.duration, max(1, options.frames // 8 - 1))
    few = Video(video.frames[:16], video.timestamps[:16], video.fps)
    same = bool((overlay(few, report).frames == redraw_each_frame(few, report).frames).all())  # also loads fonts
    ours, naive = [], []
    for _ in range(options.repeats):  # alternating, so that other load on the machine meets both
        ours.append(seconds_of(lambda: overlay(video, report)))
        naive.append(seconds_of(lambda: redraw_each_frame(video, report)))
    result: dict[str, Any] = {
        "benchmark": "overlay_speed",
        "frames": options.frames,
        "size": [options.height, options.width],
        "windows": len(report["timeline"]),
        "repeats": options.repeats,
        "pictures_identical": same,
        "machine": {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()},
    }
    for name, runs in (("overlay", ours), ("redraw", naive)):
        result[f"{name}_frames_per_second"] = options.frames / median(wall for wall, _ in runs)
        result[f"{name}_frames_per_processor_second"] = options.frames / median(processor for _, processor in runs)
        result[f"{name}_first_call_frames_per_second"] = options.frames / runs[0][0]  # pays for untouched memory
    result["ratio"] = result["overlay_frames_per_second"] / result["redraw_frames_per_second"]
    with atomic_file(options.output) as temporary:
        temporary.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(
        f"{options.frames} frames of {options.width}x{options.height}, {result['windows']} windows: "
        f"overlay {result['overlay_frames_per_second']:.0f} frames/s, redraw {result['redraw_frames_per_second']:.0f} frames/s, "
        f"ratio {result['ratio']:.1f}; pictures identical: {same}; written to {options.output}"
    )


if __name__ == "__main__":
    main()
