"""Held-out prompts: distinct, never trained on, each with a clean clip and labels that the evaluator takes."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("pymunk", reason='the extra "pretrain" is not installed')
pytest.importorskip("skimage", reason='the extra "pretrain" is not installed')
pytest.importorskip("sklearn", reason='the extra "pretrain" is not installed')

from phys_pipeline.evaluation.prompts.label import Label
from training.world.captions import write_caption
from training.world.prompts import held_out_clips, labels_of
from training.world.scenes import is_held_out


def test_prompts_are_distinct_held_out_and_a_longer_set_begins_with_the_shorter():
    clips, fewer = held_out_clips(24, 1, side=32), held_out_clips(8, 1, side=32)
    assert len({clip.caption for clip in clips}) == 24
    assert all(is_held_out(clip.scene) and not clip.flaw and clip.caption == write_caption(clip.scene) for clip in clips)
    assert all(a.caption == b.caption and torch.equal(a.video, b.video) for a, b in zip(fewer, clips, strict=False))


def test_labels_are_those_of_the_prompt_sets():
    labels = [labels_of(clip) for clip in held_out_clips(24, 1, side=32)]
    for own in labels:
        if own["motion"] not in ("mixed", "other"):
            Label(own["motion"], own.get("direction"))  # raises where they don't go together
    assert {own["stratum"] for own in labels} == {"simple", "complex"}
