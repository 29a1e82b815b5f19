"""Captions: known wordings, and the evaluator reads the same direction from them that the scene has."""

from __future__ import annotations

import numpy as np

from phys_pipeline.evaluation.metrics.direction import picture_direction
from phys_pipeline.evaluation.prompts.rules import direction_by_rules
from training.tiny_model import build_tokenizer
from training.world.captions import direction_of, vocabulary, write_caption
from training.world.scenes import Scene, draw_scene


def test_canonical_captions():
    assert write_caption(Scene("shape", "red square", ("moves right",))) == "a red square moves right"
    assert write_caption(Scene("photograph", "cat", camera="pans left")) == "a picture of a cat, the camera pans left"
    mixed = Scene("shape", "blue hook", ("moves up", "rotates clockwise"))
    assert write_caption(mixed) == "a blue hook moves up and rotates clockwise"
    assert write_caption(Scene("event", "red circle", ("hits",), other="blue")) == "a red circle hits a blue circle"


def test_the_evaluator_reads_the_scenes_own_direction_from_every_wording():
    rng, compared = np.random.default_rng(4), 0
    for _ in range(1500):
        scene = draw_scene(rng)
        label, text = direction_of(scene), write_caption(scene, rng, 1.0)
        if label is not None and scene.motions != ("falls and bounces",):
            compared += 1
            assert direction_by_rules(text) == label, text
            assert picture_direction(label) is not None
    assert compared > 600


def test_mixtures_have_no_single_direction():
    assert direction_of(Scene("shape", "red square", ("moves right", "grows"))) is None
    assert direction_of(Scene("shape", "red square", ("moves right",), "pans left")) is None
    assert direction_of(Scene("shape", "red square", ("stays still",), "pans left")) == "pan_left"


def test_paraphrases_differ_and_the_share_is_kept():
    rng, scene = np.random.default_rng(5), Scene("shape", "red square", ("moves right",))
    texts = [write_caption(scene, rng, 0.5) for _ in range(400)]
    assert len(set(texts)) == 4 and 0.5 < texts.count("a red square moves right") / 400 < 0.75


def test_every_caption_word_is_in_the_vocabulary_and_fits_the_text_encoder():
    words = {word for text in vocabulary() for word in text.replace(",", "").split()}
    rng, tokenizer = np.random.default_rng(6), build_tokenizer(vocabulary())
    for _ in range(400):
        text = write_caption(draw_scene(rng), rng, 1.0)
        assert set(text.replace(",", "").split()) <= words
        assert len(tokenizer(text).input_ids) <= 24
