"""Best of N: the same prompt from several seeds, the video with the most coherent motion wins. No training at all.

A plain peer of every trained adapter: compare at equal compute, so base and adapter get the same number of seeds.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from phys_pipeline.adapters import pipeline_adapter_at
from phys_pipeline.atomic import atomic_file
from phys_pipeline.errors import ConfigError
from phys_pipeline.families import as_loaded
from phys_pipeline.media import Video, write_video
from phys_pipeline.pipelines.ab import Progress, available_adapter, encode_prompt, generate
from phys_pipeline.scoring import score_video

LEAST_DYNAMIC = 0.01  # dynamic degree under which a clip counts as still
LEAST_OF_MEDIAN = 0.5  # share of the moving candidates' median dynamic degree that a winner needs


@dataclass(frozen=True)
class Candidate:
    """One seed's motion loss (calibrated) and dynamic degree, and whether it moves enough to win."""

    seed: int
    loss: float
    dynamic_degree: float
    moves: bool = True


@dataclass(frozen=True)
class Best:
    """The winning video, and all candidates in the order of their seeds."""

    video: Video
    seed: int
    candidates: tuple[Candidate, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values without the video."""
        return {"seed": self.seed, "candidates": [asdict(candidate) for candidate in self.candidates]}


def judged(candidates: Sequence[Candidate]) -> tuple[int, tuple[Candidate, ...]]:
    """Place of the winner, and the candidates with ``moves`` set.

    The lowest motion loss wins, the earlier of two equals. A still clip's loss is 0, so a winner must move: by LEAST_DYNAMIC, and
    by half of the median of those that do. Where none moves, the one that moves most wins.
    """
    moving = [c.dynamic_degree for c in candidates if c.dynamic_degree >= LEAST_DYNAMIC]
    least = max(LEAST_DYNAMIC, LEAST_OF_MEDIAN * statistics.median(moving)) if moving else float("inf")
    marked = tuple(replace(c, moves=c.dynamic_degree >= least) for c in candidates)
    places = range(len(marked))
    if not moving:
        return max(places, key=lambda place: marked[place].dynamic_degree), marked
    return min((place for place in places if marked[place].moves), key=lambda place: marked[place].loss), marked


def generate_best(
    pipe: Any,
    prompt: str,
    count: int,
    adapter: str | Path | None = None,
    seed: int = 0,
    *,
    weight: float = 1.0,
    baseline: bool = True,
    keep_all: str | Path | None = None,
    progress: Progress | None = None,
    **generation: Any,
) -> dict[str, Best]:
    """The best of ``count`` videos from the seeds ``seed``, ``seed + 1``, ...

    Without an adapter the result has one entry, "generated". With one it has "physics" and, if ``baseline``, "baseline": each the
    best of the same seeds, so both cost the same. Pictures wait on disk, so memory holds one video however many are made.
    ``keep_all`` is a folder that gets every video as NAME-seed-N.mp4, and candidates.json. Arguments and errors as in
    :func:`generate` and :func:`generate_pair`, and ConfigError for a ``count`` below 1; progress stages are "NAME, seed N".
    """
    if count < 1:
        raise ConfigError(f"best of {count}: use at least 1")
    model = as_loaded(pipe)
    conditioning = encode_prompt(model, prompt, **generation)
    with available_adapter(model, adapter) as name, tempfile.TemporaryDirectory(prefix="phys-pipeline-") as scratch:
        sides = {"generated": None} if adapter is None else {"baseline": None, "physics": name}
        if not baseline:
            sides.pop("baseline", None)
        found: dict[str, list[Candidate]] = {side: [] for side in sides}
        for number in range(seed, seed + count):
            for side, which in sides.items():
                switch = nullcontext() if adapter is None else pipeline_adapter_at(model.pipeline, which, weight)
                with switch:
                    video = generate(
                        model, prompt, number, conditioning=conditioning, progress=_named(progress, f"{side}, seed {number}"),
                        **generation,
                    )  # fmt: skip
                report = score_video(video)
                found[side].append(Candidate(number, float(report.loss["composite"]), float(report.dynamic_degree)))
                if keep_all is not None:
                    write_video(Path(keep_all) / f"{side}-seed-{number}.mp4", video)
                np.save(Path(scratch) / f"{side}-{number}.npy", video.frames)
        best = {}
        for side, candidates in found.items():
            place, marked = judged(candidates)
            frames = np.load(Path(scratch) / f"{side}-{marked[place].seed}.npy")
            best[side] = Best(Video.from_frames(frames, fps=video.fps, source=prompt), marked[place].seed, marked)
    if keep_all is not None:
        with atomic_file(Path(keep_all) / "candidates.json") as temporary:
            content = {"prompt": prompt, "best_of": {side: result.to_dict() for side, result in best.items()}}
            temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return best


def candidate_table(best: dict[str, Best]) -> str:
    """Plain text: a row per video, the winners marked."""
    rows = [f"{'video':10s} {'seed':>6s} {'motion loss':>12s} {'dynamic degree':>15s}"]
    for side, result in best.items():
        for c in result.candidates:
            note = "  best" if c.seed == result.seed else "" if c.moves else "  hardly moves"
            rows.append(f"{side:10s} {c.seed:6d} {c.loss:12.4f} {c.dynamic_degree:15.4f}{note}")
    return "\n".join(rows)


def _named(progress: Progress | None, name: str) -> Progress | None:
    return None if progress is None else lambda _, step, total: progress(name, step, total)
