"""Labels by rules: what counts, what negation takes away, and captions whose motion is known from elsewhere."""

from __future__ import annotations

import pytest

from phys_pipeline.evaluation.prompts import label_by_rules
from phys_pipeline.media.synthetic import MOTIONS, all_captions, canonical_caption

KNOWN = {
    "moves left": ("translation", "left"),
    "moves right": ("translation", "right"),
    "moves up": ("translation", "up"),
    "moves down": ("translation", "down"),
    "rotates clockwise": ("rotation", "clockwise"),
    "rotates counterclockwise": ("rotation", "counterclockwise"),
    "grows": ("scaling", "zoom_in"),
    "shrinks": ("scaling", "zoom_out"),
    "stays still": ("other", "static"),
}


@pytest.mark.parametrize("motion", MOTIONS)
def test_the_embedded_models_captions(motion):
    label = label_by_rules(canonical_caption("red", "square", motion))
    assert (label.motion, label.direction) == KNOWN[motion]


def test_every_caption_of_the_embedded_model_has_a_direction():
    assert all(label_by_rules(caption).direction is not None for caption in all_captions())


@pytest.mark.parametrize(
    ("text", "motion", "direction"),
    [
        ("A box slides right without rotating.", "translation", "right"),
        ("The wheel does not rotate.", "other", None),
        ("A ball that isn't moving.", "other", "static"),
        ("A ball is still moving left.", "translation", "left"),
        ("A door left open in a quiet room.", "other", None),
        ("The camera does not move; a disc spins clockwise.", "rotation", "clockwise"),
        ("A bird figurine flies towards the camera.", "scaling", "zoom_in"),
        ("A boat on a lake, camera pans left.", "translation", "pan_left"),
        ("A zebra, tilt down.", "translation", "tilt_down"),
        ("The camera zooms out while it rolls clockwise.", "mixed", None),
        ("A cube moves left and the camera pans right.", "mixed", None),
        ("A dog runs to the left.", "other", None),
        ("A gear turns anti-clockwise.", "rotation", "counterclockwise"),
        ("A gear turns counter-clockwise.", "rotation", "counterclockwise"),
        ("A GEAR TURNS CLOCKWISE.", "rotation", "clockwise"),
        ("From left to right a bus passes.", "translation", "right"),
        ("", "other", None),
        ("Ein Kreisel auf dem Tisch.", "other", None),
    ],
)
def test_phrases(text, motion, direction):
    label = label_by_rules(text)
    assert (label.motion, label.direction) == (motion, direction), label


def test_amplitude_needs_one_clear_word():
    assert label_by_rules("A ball moves slowly left.").amplitude == "slow"
    assert label_by_rules("A ball moves quickly left.").amplitude == "large"
    assert label_by_rules("A ball moves left, first slowly, then fast.").amplitude is None


def test_the_words_that_decided_are_kept_and_doubt_is_shown():
    sure = label_by_rules("A gear rotates clockwise.")
    assert "clockwise" in sure.matched and sure.labeller == "rules"
    unsure = label_by_rules("A quiet afternoon.")
    assert unsure.confidence < sure.confidence and unsure.matched == ()
    contradicting = label_by_rules("A cart moves left, then it moves right.")
    assert contradicting.direction is None and contradicting.confidence < 0.5
