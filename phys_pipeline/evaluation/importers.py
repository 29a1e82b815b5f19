"""Rows from the result files of other programs: EvalCrafter's logs and VBench's JSON. Values stay in those programs' units."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from pathlib import Path

from phys_pipeline.errors import DataError
from phys_pipeline.evaluation.metrics.aggregates import IMPORTED
from phys_pipeline.evaluation.rows import Row
from phys_pipeline.evaluation.sample import VideoSample

_NUMBER = r"(?:tensor\()?(?P<value>nan|[-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?)"
_VIDEO = re.compile(rf"Vid: (?P<video>[^,]+),\s+Current (?P<metric>\w+): {_NUMBER}")
_AVERAGE = re.compile(rf"Final average (?P<metric>\w+): {_NUMBER}")
_ID_LENGTH = 4  # EvalCrafter's ids are the first four characters of a file's name
VBENCH = "vbench_"


def evalcrafter_rows(folder: str | Path, model: str) -> list[Row]:
    """One row per video and metric of EvalCrafter's ``results/*_record.txt``; keys ``evalcrafter_clip_score`` and so on.

    Detection prints a line per object; a video's row is their mean. Raises DataError when the folder holds no such value.
    """
    values: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for file, text in _records(folder):
        for found in _VIDEO.finditer(text):
            values[found["video"].strip()[:_ID_LENGTH], found["metric"], file].append(float(found["value"]))
    if not values:
        raise DataError(f"{folder} has no *_record.txt with values of videos: give the folder results of EvalCrafter")
    return [
        _row(video, model, IMPORTED + metric, sum(numbers) / len(numbers), file, "evalcrafter")
        for (video, metric, file), numbers in values.items()
    ]


def evalcrafter_averages(folder: str | Path) -> dict[str, float]:
    """The final average of each metric of EvalCrafter's ``results/*_record.txt``, by its name there.

    The argument of :func:`phys_pipeline.evaluation.metrics.aggregates.text_video_alignment`, whose parts cover different videos.
    Raises DataError when the folder holds none.
    """
    values = {found["metric"]: float(found["value"]) for _, text in _records(folder) for found in _AVERAGE.finditer(text)}
    if not values:
        raise DataError(f"{folder} has no *_record.txt with a final average: give the folder results of EvalCrafter")
    return values


def vbench_rows(file: str | Path, model: str) -> list[Row]:
    """One row per video and dimension of VBench's ``*_eval_results.json``; keys ``vbench_subject_consistency`` and so on.

    Raises DataError when the file has another form.
    """
    file = Path(file)
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return [
            _row(Path(video["video_path"]).stem, model, VBENCH + dimension, float(video["video_results"]), file.name, "imported")
            for dimension, (_, videos) in content.items()
            for video in videos
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{file} is not VBench's list of results per dimension ({type(error).__name__}: {error})") from error


def _records(folder: str | Path) -> list[tuple[str, str]]:
    """Name and text of each of EvalCrafter's logs."""
    files = sorted(Path(folder).glob("*_record.txt"))
    return [(file.name, file.read_text(encoding="utf-8", errors="replace")) for file in files]


def _row(id: str, model: str, key: str, value: float, file: str, protocol: str) -> Row:
    name = VideoSample(id, model, path=Path(file)).name
    if not math.isfinite(value):
        return Row(name, id, model, None, key, None, "failed", f"{value} in {file}", f"imported from {file}", protocol)
    return Row(name, id, model, None, key, value, "ok", "", f"imported from {file}", protocol)
