"""How long does scoring a file take beside decoding it, and how much memory does it need for a long clip?

    python benchmarks/score_speed.py                   a sample clip looped and enlarged to 1280x720, 247 frames
    python benchmarks/score_speed.py --clip FILE       another clip

Decoding (every frame to full-size RGB, one at a time, all decoder threads) and scoring (``score_file``, which decodes too) are
timed in turn in one process. The ratio is (score - decode) / decode. Memory is the largest resident set of ``phys-pipeline
score`` in a fresh process, for the clip repeated to 10 seconds, one minute and ten minutes without encoding it again.
Prints a table and writes docs/results/score_speed.md and out/benchmarks/score_speed.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.video.reformatter import VideoReformatter

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that `benchmarks` is found

from benchmarks.timing import median_interval
from phys_pipeline.atomic import atomic_file
from phys_pipeline.media import probe, read_video
from phys_pipeline.media.reading import VideoStream
from phys_pipeline.scoring import score_file
from phys_pipeline.spectral import SpectralConfig, SpectralMotionLoss
from phys_pipeline.spectral.estimate import estimate_similarity
from phys_pipeline.spectral.report import MotionAnalyser, analysis_size

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "samples" / "clips" / "mdn_rabbit.webm"
FRAMES, HEIGHT, WIDTH = 247, 720, 1280
LENGTHS = (10, 60, 600)  # seconds
LIMIT = 600  # MB resident


def enlarged_sample(path: Path) -> Path:
    """The sample clip, repeated, as H.264 of 1280x720 and 247 frames."""
    pictures = read_video(SAMPLE, size=(HEIGHT, WIDTH), max_frames=FRAMES).frames
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=24, options={"crf": "23"})
        stream.height, stream.width, stream.pix_fmt = HEIGHT, WIDTH, "yuv420p"
        for index in range(FRAMES):
            frame = av.VideoFrame.from_ndarray(pictures[index % len(pictures)], format="rgb24")
            frame.pts, frame.time_base = index, Fraction(1, 24)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def repeated(clip: Path, seconds: float, path: Path) -> Path:
    """The clip played again and again for ``seconds``; packets are copied, not encoded again."""
    with av.open(str(clip)) as source, av.open(str(path), "w") as target:
        old = source.streams.video[0]
        new = target.add_stream_from_template(old)
        packets = [(packet.dts, packet.pts, packet.duration) for packet in source.demux(old) if packet.size]
        start = min(pts for _, pts, _ in packets)
        length = max(pts + duration for _, pts, duration in packets) - start
        for turn in range(10**6):
            source.seek(0)
            for packet in source.demux(old):
                if not packet.size:
                    continue
                packet.dts, packet.pts = packet.dts + turn * length, packet.pts + turn * length
                if float((packet.dts - start) * old.time_base) >= seconds:
                    return path
                packet.stream = new
                target.mux(packet)
    return path


def decode(path: Path, rgb: bool = True) -> int:
    """Decode every frame, to full-size RGB unless told not to; nothing is kept."""
    with av.open(str(path)) as container:
        stream, reformatter, count = container.streams.video[0], VideoReformatter(), 0
        stream.thread_type = "AUTO"
        for frame in container.decode(stream):
            if rgb:
                reformatter.reformat(frame, format="rgb24").to_ndarray()
            count += 1
    return count


def decode_small(path: Path) -> np.ndarray:
    """The analysed frames (T', h, w, 3) at the size at which they are scored."""
    stream = VideoStream(path)
    step = MotionAnalyser(len(stream), stream.fps, (stream.height, stream.width)).step
    return np.stack(list(stream.pictures(np.arange(0, len(stream), step), analysis_size(stream.height, stream.width))))


def seconds_of(function: Callable[[], Any]) -> tuple[float, float]:
    """Wall-clock and processor seconds of one call."""
    wall, processor = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - wall, time.process_time() - processor


def timings(clip: Path, repeats: int) -> dict[str, list[tuple[float, float]]]:
    """Seconds of every part, the parts in turn ``repeats`` times after one unmeasured round."""
    import torch

    torch.set_num_threads(1)  # as a score does
    small = torch.from_numpy(decode_small(clip)).permute(3, 0, 1, 2).float() / 255
    windows = [small[:, start : start + 16] for start in range(0, max(1, small.shape[1] - 15), 8)]
    loss = SpectralMotionLoss(SpectralConfig.calibrated())

    @torch.no_grad()
    def losses() -> None:
        for index in range(0, len(windows), 2):
            loss(torch.stack(windows[index : index + 2]), reduction="none")

    parts: dict[str, Callable[[], Any]] = {
        "decode": lambda: decode(clip),
        "score": lambda: score_file(clip),
        "decode without colour conversion": lambda: decode(clip, rgb=False),
        "decode at the analysed size and rate": lambda: decode_small(clip),
        "losses": losses,
        "motion estimates": lambda: [estimate_similarity(window) for window in windows],
    }
    result: dict[str, list[tuple[float, float]]] = {name: [] for name in parts}
    for turn in range(repeats + 1):
        for name, part in parts.items():
            spent = seconds_of(part)
            if turn:
                result[name].append(spent)
    return result


def resident(path: Path) -> dict[str, float]:
    """Largest resident set in MB and seconds of ``phys-pipeline score`` on a file, in a process of its own."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "phys_pipeline", "score", "--json", str(path)], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"scoring {path} failed")
    return {"megabytes": usage.ru_maxrss * 1024 / 1e6, "seconds": time.perf_counter() - began}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clip", type=Path, help="a video file")
    parser.add_argument("--repeats", type=int, default=11)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        clip = options.clip or enlarged_sample(Path(folder) / "sample.mp4")
        info = probe(clip)
        spent = timings(clip, options.repeats)
        wall = {name: np.array([pair[0] for pair in pairs]) for name, pairs in spent.items()}
        processor = {name: np.array([pair[1] for pair in pairs]) for name, pairs in spent.items()}
        ratio, strict = ((wall["score"] - wall[base]) / wall[base] for base in ("decode", "decode without colour conversion"))
        memory = {}
        for seconds in LENGTHS:
            memory[seconds] = resident(repeated(clip, seconds, Path(folder) / f"{seconds}{clip.suffix}"))
            print(f"{seconds} s: {memory[seconds]['megabytes']:.0f} MB", file=sys.stderr, flush=True)
    name = options.clip.name if options.clip else f"{SAMPLE.name}, looped and enlarged"
    middle, low, high = median_interval(ratio)
    strict_middle, strict_low, strict_high = median_interval(strict)
    lines = [
        "# Speed and memory of scoring a file", "",
        f"Made by `python benchmarks/score_speed.py{' --clip FILE' if options.clip else ''}`: {name}, "
        f"{info.width}x{info.height}, {info.frames} frames, {info.fps:.4g} fps, {info.codec}; {options.repeats} repeats in turn "
        "in one process after one that is not counted, medians with 95 % bootstrap intervals; "
        f"{os.cpu_count()} cores ({platform.machine()}), threads as the program chooses.", "",
        f"**Scoring takes {middle:.2f} [{low:.2f}, {high:.2f}] times as long as decoding, beyond decoding**: "
        "(score - decode) / decode, where decode makes every frame full-size RGB and score is `score_file`, which decodes too. "
        f"Against decoding without conversion of colours it is {strict_middle:.2f} [{strict_low:.2f}, {strict_high:.2f}].", "",
        "| part | wall-clock ms | processor ms |", "|---|---|---|",
    ]  # fmt: skip
    for part in spent:
        cells = (median_interval(1e3 * times[part]) for times in (wall, processor))
        lines.append(f"| {part} | " + " | ".join(f"{a:.0f} [{b:.0f}, {c:.0f}]" for a, b, c in cells) + " |")
    lines += [
        "", "The last three parts are measured apart, one after another; in a score they overlap where cores are free. A fresh "
        "process also spends time on loading Python packages (torch above all), which no clip's length changes and the ratio "
        "leaves out.", "",
        "Memory of `phys-pipeline score --json` in a fresh process, the clip repeated by copying its packets "
        f"(limit {LIMIT} MB for ten minutes):", "",
        "| clip | largest resident set | seconds, loading included |", "|---|---|---|",
    ]  # fmt: skip
    lines += [f"| {seconds} s | {used['megabytes']:.0f} MB | {used['seconds']:.1f} |" for seconds, used in memory.items()]
    met = middle <= 1.0 and memory[LENGTHS[-1]]["megabytes"] < LIMIT
    lines += ["", f"Required: ratio at most 1.0 and under {LIMIT} MB for ten minutes. {'Met.' if met else 'Not met.'}"]
    text = "\n".join(lines) + "\n"
    print(text)
    with atomic_file(ROOT / "docs" / "results" / "score_speed.md") as temporary:
        temporary.write_text(text, encoding="utf-8")
    content = {"ratio": ratio.tolist(), "ratio_without_colour": strict.tolist(), "seconds": spent, "memory": memory}
    with atomic_file(ROOT / "out" / "benchmarks" / "score_speed.json") as temporary:
        temporary.write_text(json.dumps(content, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
