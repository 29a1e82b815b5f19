"""A small study: two columns, four prompts; "ours" moves faster than "baseline"."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phys_pipeline.evaluation import VideoSample
from phys_pipeline.evaluation.study.analyse import read_key
from phys_pipeline.evaluation.study.build import build_study
from phys_pipeline.evaluation.study.session import Session, Study
from phys_pipeline.media import Video, write_video
from phys_pipeline.media.synthetic import textured_clip

SPEEDS = {"baseline": 0.6, "ours": 2.0}  # pixels a frame
LABELS = ({"stratum": "simple", "motion": "translation"}, {"stratum": "complex", "motion": "other"})


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> list[VideoSample]:
    folder = tmp_path_factory.mktemp("columns")
    made = []
    for column, speed in SPEEDS.items():
        for index in range(4):
            path = folder / column / f"p{index}.mp4"
            clip = textured_clip(9, 48, 64, seed=index, velocity=(speed, 0.0))
            write_video(path, Video.from_tensor(clip.video, fps=8))
            made.append(VideoSample(f"p{index}", column, f"Prompt <b>{index}</b>", path=path, labels=LABELS[index % 2]))
    return made


@pytest.fixture(scope="session")
def built(samples: list[VideoSample], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A study folder and its key."""
    folder = tmp_path_factory.mktemp("study")
    build_study(samples, folder / "study", folder / "study.key.json", seed=5)
    return folder / "study", read_key(folder / "study.key.json")


@pytest.fixture
def session(built: tuple[Path, dict[str, Any]], tmp_path: Path) -> Iterator[Session]:
    made = Session(Study(built[0]), tmp_path / "answers.jsonl")
    yield made
    made.close()
