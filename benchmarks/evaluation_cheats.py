"""Which ways to win a temporal metric without better motion does an evaluation's red line catch?

    python benchmarks/evaluation_cheats.py                    the sample clips
    python benchmarks/evaluation_cheats.py --clips FOLDER     other real clips

Writes docs/results/evaluation_cheats.md; rows go to out/benchmarks/evaluation_cheats/, from which an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageFilter

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that `benchmarks` is found

from benchmarks.discrimination import header, row_of
from benchmarks.scores import ROOT
from phys_pipeline.atomic import atomic_file
from phys_pipeline.evaluation.controls import frozen, half_speed, time_blurred
from phys_pipeline.evaluation.evaluator import Evaluator
from phys_pipeline.evaluation.guards import CHANGES, RATIOS, TYPICAL
from phys_pipeline.evaluation.manifest import VIDEO_SUFFIXES
from phys_pipeline.evaluation.metric import Settings
from phys_pipeline.evaluation.report import Column, build_report, describe_run, trace
from phys_pipeline.evaluation.sample import VideoSample
from phys_pipeline.evaluation.statistics import Pair, paired_ratio
from phys_pipeline.media import read_video

SIDE, FRAMES, RATE = 160, 24, 12  # pixels of the shorter side, frames, about frames per second
GAINS = ("plausibility", "warping_error", "temporal_flicker")
Cheat = Callable[[np.ndarray], np.ndarray]  # uint8 (T, H, W, 3) to the same


def shown_at(frames: np.ndarray, times: np.ndarray) -> np.ndarray:
    """The clip at fractional frame numbers (T,), neighbours blended."""
    before = np.floor(times).astype(int)
    after, share = np.minimum(before + 1, len(frames) - 1), (times - before)[:, None, None, None]
    return np.rint(frames[before] * (1 - share) + frames[after] * share).astype(np.uint8)


def blurred(frames: np.ndarray) -> np.ndarray:
    """A Gaussian blur with a standard deviation of 3 pixels."""
    return np.stack([np.asarray(Image.fromarray(frame).filter(ImageFilter.GaussianBlur(3))) for frame in frames])


def panned_still(frames: np.ndarray) -> np.ndarray:
    """The first frame, enlarged by a half, under a steady pan."""
    height, width = frames.shape[1:3]
    large = Image.fromarray(frames[0]).resize((width * 3 // 2, height * 3 // 2), Image.Resampling.BICUBIC)
    step = (large.width - width) / (len(frames) - 1)
    places = [(1, 0, step * index, 0, 1, height / 4) for index in range(len(frames))]
    return np.stack([
        np.asarray(large.transform((width, height), Image.Transform.AFFINE, place, Image.Resampling.BILINEAR)) for place in places
    ])  # fmt: skip


def small_motion(frames: np.ndarray) -> np.ndarray:
    """The first frame, but for the middle ninth of the picture."""
    height, width = frames.shape[1:3]
    found = np.repeat(frames[:1], len(frames), axis=0)
    middle = (slice(None), slice(height // 3, 2 * height // 3), slice(width // 3, 2 * width // 3))
    found[middle] = frames[middle]
    return found


_ANY = np.random.default_rng(0)  # the controls used here draw nothing
CHEATS: dict[str, tuple[str, Cheat]] = {
    "frozen": ("first frame repeated", lambda f: frozen(f, _ANY)),
    "half speed": ("odd frames blended", lambda f: half_speed(f, _ANY)),
    "nine tenths": ("of the speed, blended", lambda f: shown_at(f, 0.9 * np.arange(len(f)))),
    "time-blurred": ("mean of five frames", lambda f: time_blurred(f, _ANY)),
    "blurred": ("3 pixels", blurred),
    "panned still": ("first frame enlarged", panned_still),
    "small motion": ("still but for a ninth", small_motion),
    "cross-fade": ("first to last frame", lambda f: shown_at(f[[0, -1]], np.linspace(0, 1, len(f)))),
    "loop": ("first half twice", lambda f: f[np.arange(len(f)) % -(-len(f) // 2)]),
    "speed ramp": ("time to the power 2.5", lambda f: shown_at(f, (len(f) - 1) * np.linspace(0, 1, len(f)) ** 2.5)),
}
PARTLY = "half speed, slow quarter"  # the quarter of the clips with the least flow at half speed, the others unchanged

INTRODUCTION = """# Which cheats does the red line catch?

Made by `python benchmarks/evaluation_cheats.py{arguments}`: {n} real clips ({names}) of at most {frames} frames, {side} pixels
on the shorter side, against copies that should win nothing. DIS flow, seed 0, 95 % bootstrap intervals over clips. *Caught* says
whether a report of `phys-pipeline evaluate` draws its red line. Values: mean of the copies over mean of the clips, for
`{typical}` the geometric mean of the clips' ratios; points for dynamic degree and active share; then the difference in
plausibility (up is better), warping error over the clips' (down is better) and the difference in temporal flickering (up is
better). The limits of temporal energy, object flow, detail and the typical clip were set with these clips in view: nothing here
is held out. A copy that is not caught must lose elsewhere to be harmless: look at its plausibility.

"""


def clips(folder: Path) -> dict[str, tuple[np.ndarray, float]]:
    """Frames uint8 (T, H, W, 3) and rate of each video of a folder, reduced and thinned."""
    found = {}
    for file in sorted(path for path in folder.iterdir() if path.suffix.lower() in VIDEO_SUFFIXES):
        video = read_video(file, max_frames=FRAMES * 6)
        step = max(1, round(video.fps / RATE))
        factor = SIDE / min(video.height, video.width)
        size = round(video.width * factor), round(video.height * factor)
        frames = [np.asarray(Image.fromarray(f).resize(size, Image.Resampling.BILINEAR)) for f in video.frames[::step][:FRAMES]]
        found[file.stem] = np.stack(frames), video.fps / step
    return found


def evaluated(real: dict[str, tuple[np.ndarray, float]], folder: Path) -> dict[str, Any]:
    """The report of the clips as baseline and of every cheat as a column."""
    evaluator = Evaluator((*GAINS, *RATIOS, *CHANGES), Settings(flow="dis"), folder)
    samples = [VideoSample(name, "clips", frames=frames, fps=fps) for name, (frames, fps) in real.items()]
    flow = {row.id: row.value or 0.0 for row in evaluator.run(samples) if row.metric == "flow_score"}
    for cheat, (_, change) in CHEATS.items():
        samples += [VideoSample(name, cheat, frames=change(frames), fps=fps) for name, (frames, fps) in real.items()]
    slow = sorted(flow, key=lambda name: flow[name])[: len(flow) // 4]
    for name, (frames, fps) in real.items():
        samples.append(VideoSample(name, PARTLY, frames=half_speed(frames, _ANY) if name in slow else frames, fps=fps))
    rows = evaluator.run(samples, progress=lambda done, total: print(f"\r{done}/{total}", end="", file=sys.stderr))
    run = describe_run("benchmarks/evaluation_cheats.py", seed=0)
    return build_report(rows, list(evaluator.infos.values()), [Column(key) for key in ("clips", *CHEATS, PARTLY)], run)


def table(report: dict[str, Any]) -> list[str]:
    """One line for each cheat."""
    checks = (*RATIOS[:1], TYPICAL, *RATIOS[1:], *CHANGES)
    lines = header(["copy", "caught", *checks, *GAINS])
    for key, guard in report["guards"].items():
        cells = [_cell(guard["checks"][name], "value") for name in checks]
        paired = report["paired"]["clips"][key]
        ratio = paired_ratio(_errors(report, "clips"), _errors(report, key))
        relative = {"diff": ratio.value, "ci": ratio.interval}
        gains = [_cell(entry, "diff", 3) for entry in (paired["plausibility"], relative, paired["temporal_flicker"])]
        name = f"{key} ({CHEATS[key][0]})" if key in CHEATS else key
        lines.append(row_of([name, "yes" if guard["red"] else "**no**", *cells, *gains]))
    return lines


def _errors(report: dict[str, Any], column: str) -> dict[Pair, float]:
    return {(row["id"], row["seed"]): row["value"] for row in trace(report, column, "warping_error")}


def _cell(entry: Mapping[str, Any], field: str, decimals: int = 2) -> str:
    if entry[field] is None:
        return "none"
    low, high = entry["ci"] or (entry[field], entry[field])
    return f"{entry[field]:.{decimals}f} [{low:.{decimals}f}, {high:.{decimals}f}]"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=Path, default=ROOT / "samples" / "clips")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "results" / "evaluation_cheats.md")
    options = parser.parse_args(arguments)
    real = clips(options.clips)
    lines = table(evaluated(real, ROOT / "out" / "benchmarks" / "evaluation_cheats"))
    text = INTRODUCTION.format(
        arguments="" if options.clips == ROOT / "samples" / "clips" else " --clips FOLDER", n=len(real), names=", ".join(real),
        frames=FRAMES, side=SIDE, typical=TYPICAL,
    )  # fmt: skip
    with atomic_file(options.output) as temporary:
        temporary.write_text(text + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
