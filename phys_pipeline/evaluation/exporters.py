"""Videos in the folder layouts that other benchmarks' programs read: VBench, VideoPhy-2, Physics-IQ.

The layouts follow those benchmarks' documentation as we know it; none of their programs has been run on the result here, so look
at a few files before a long run. Files are copied unchanged where the layout allows it.
"""

from __future__ import annotations

import argparse
import csv
import re
import shutil
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

from phys_pipeline.atomic import atomic_folder
from phys_pipeline.errors import ConfigError, DataError
from phys_pipeline.evaluation.sample import VideoSample
from phys_pipeline.media import Video, resample, write_video

_NOT_IN_NAMES = re.compile(r'[/\\:*?"<>|\x00-\x1f]')
_LONGEST_NAME = 255  # bytes, on common file systems
_PHYSICS_IQ_SECONDS = 5
_PHYSICS_IQ_ID = re.compile(r"\d{4}(?:_.*)?")


def export_vbench(samples: Sequence[VideoSample], folder: Path) -> list[Path]:
    """``PROMPT-INDEX.mp4``: the prompt's exact text, and a running number from 0 over its seeds.

    VBench finds videos by these names and by nothing else: another name gives an empty result, not an error. It wants 5 videos of
    each of its own prompts. How prompts that a file name can't hold are to be written is not documented: they are refused.

    Raises:
        DataError: no prompt, one that can't be a file name, or two samples of one prompt and seed.
    """
    counts: dict[str, int] = {}
    plan = {}
    for sample in _ordered(samples):
        prompt = _prompt(sample)
        index = counts[prompt] = counts.get(prompt, -1) + 1
        name = f"{prompt}-{index}.mp4"
        if _NOT_IN_NAMES.search(prompt) or len(name.encode()) > _LONGEST_NAME:
            raise DataError(f"{sample.name}: its prompt can't be a file name, which is how VBench finds videos: {prompt[:60]!r}")
        plan[name] = sample
    return _write(plan, folder, _copy)


def export_videophy2(samples: Sequence[VideoSample], folder: Path) -> list[Path]:
    """``videos/ID[_seedN].mp4`` and ``videos.csv`` with the columns ``videopath`` (absolute) and ``caption``.

    These two columns are what VideoPhy-2's automatic judge reads.
    """
    ordered = _ordered(samples)
    plan = {f"videos/{_stem(sample)}.mp4": sample for sample in ordered}

    def table(temporary: Path) -> None:
        with (temporary / "videos.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(("videopath", "caption"))
            writer.writerows(((folder.resolve() / name).as_posix(), _prompt(sample)) for name, sample in plan.items())

    return _write(plan, folder, _copy, table)


def export_physics_iq(samples: Sequence[VideoSample], folder: Path) -> list[Path]:
    """``ID.mp4``, cut to exactly 5 s: the benchmark compares with 5 s of real footage and refuses other lengths.

    The id must be that of the benchmark's own scene and view, four digits first ("0001_perspective-left_..."); what may follow
    the digits is not verified here. The first 5 s are kept, encoded anew, at the clip's own rate or, where 5 s are no whole
    number of frames at it, at the nearest rate at which they are.

    Raises:
        DataError: an id without four digits, several seeds of one id (the benchmark takes one), or a clip under 5 s.
    """
    plan = {}
    for sample in _ordered(samples):
        if not _PHYSICS_IQ_ID.fullmatch(sample.id):
            raise DataError(
                f"{sample.name}: Physics-IQ needs its own ids, four digits first, for example 0001_perspective-left_..."
            )
        if f"{sample.id}.mp4" in plan:
            raise DataError(f"{sample.name}: Physics-IQ takes one video of each scene; choose a seed")
        plan[f"{sample.id}.mp4"] = sample
    return _write(plan, folder, _five_seconds)


LAYOUTS: dict[str, Callable[[Sequence[VideoSample], Path], list[Path]]] = {
    "vbench": export_vbench,
    "videophy2": export_videophy2,
    "physics-iq": export_physics_iq,
}


def main(arguments: Sequence[str]) -> int:
    """``phys-pipeline evaluate export``; returns the exit code. Raises PhysPipelineError, with one line, on expected trouble."""
    parser = argparse.ArgumentParser(
        prog="phys-pipeline evaluate export", description="Lay videos out as another benchmark's program expects them."
    )
    parser.add_argument("sources", nargs="+", metavar="SOURCE", help="NAME=FOLDER of one column, or a manifest")
    parser.add_argument("--layout", required=True, choices=tuple(LAYOUTS))
    parser.add_argument("--prompts", metavar="FILE", help="motion (our set), .json, .jsonl or .csv with id and prompt")
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER", help="folder to make")
    options = parser.parse_args(arguments)
    from phys_pipeline.evaluation.manifest import read_samples

    samples = read_samples(options.sources, options.prompts)
    columns = {sample.model for sample in samples}
    if len(columns) > 1:
        raise ConfigError(f"export one column at a time, not {', '.join(sorted(columns))}")
    files = LAYOUTS[options.layout](samples, Path(options.output))
    print(f"{len(files)} videos  {options.output}")
    return 0


def _write(
    plan: dict[str, VideoSample],
    folder: Path,
    write: Callable[[VideoSample, Path], None],
    finish: Callable[[Path], None] = lambda temporary: None,
) -> list[Path]:
    """Write the planned files into a new folder, whole or not at all."""
    if folder.exists():
        raise DataError(f"{folder} exists already: choose another name")
    with atomic_folder(folder) as temporary:
        for name, sample in plan.items():
            (temporary / name).parent.mkdir(exist_ok=True)
            write(sample, temporary / name)
        finish(temporary)
    return [folder / name for name in plan]


def _copy(sample: VideoSample, target: Path) -> None:
    """The file itself where it is MP4 already, else encoded anew."""
    if sample.path is not None and sample.path.suffix.lower() == ".mp4":
        shutil.copyfile(sample.path, target)
    else:
        write_video(target, sample.decode())


def _five_seconds(sample: VideoSample, target: Path) -> None:
    original = sample.decode()
    frames = round(_PHYSICS_IQ_SECONDS * original.fps)
    clip = resample(original, frames / _PHYSICS_IQ_SECONDS)
    if len(clip) < frames:
        raise DataError(f"{sample.name} is {original.duration:.2f} s long: Physics-IQ needs 5 s")
    write_video(target, Video.from_frames(clip.frames[:frames], clip.fps, clip.source))


def _ordered(samples: Sequence[VideoSample]) -> list[VideoSample]:
    """By id and seed; each only once. Raises DataError without samples or with one twice."""
    if not samples:
        raise DataError("there is no video to export")
    ordered = sorted(samples, key=lambda sample: (sample.id, -1 if sample.seed is None else sample.seed))
    for sample, following in pairwise(ordered):
        if (sample.id, sample.seed) == (following.id, following.seed):
            raise DataError(f"{sample.name} and {following.name} are the same prompt and seed: export one column at a time")
    return ordered


def _prompt(sample: VideoSample) -> str:
    if not sample.prompt:
        raise DataError(f"{sample.name} has no prompt: give --prompts FILE")
    return sample.prompt


def _stem(sample: VideoSample) -> str:
    stem = sample.id if sample.seed is None else f"{sample.id}_seed{sample.seed}"
    if _NOT_IN_NAMES.search(stem):
        raise DataError(f"{sample.name}: its id can't be a file name")
    return stem
