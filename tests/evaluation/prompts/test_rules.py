"""Labels by rules: what counts, what negation takes away, and captions whose motion is known from elsewhere."""

from __future__ import annotations

import pytest

from phys_pipeline.evaluation.prompts import label_by_rules, load_prompts
from phys_pipeline.evaluation.prompts.rules import direction_by_rules
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
    for motion, (_, direction) in KNOWN.items():
        captions = [caption for caption in all_captions() if caption.endswith(motion)]
        assert captions and {label_by_rules(caption).direction for caption in captions} == {direction}
        assert {direction_by_rules(caption) for caption in captions} == {direction}


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


@pytest.mark.parametrize(
    ("prompt", "direction"),
    [
        ("A quiet beach at dawn, the camera pans left", "pan_left"),
        ("the camera slowly pans to the right over a city", "pan_right"),
        ("camera tilting upwards along a tower", "tilt_up"),
        ("a street market, camera zooms in", "camera_zoom_in"),
        ("the camera rolls counter-clockwise", "roll_counterclockwise"),
        ("camera dollies out from a desk", "dolly_out"),
        ("a vase, static camera", "camera_static"),
        ("a car drives to the left while the camera pans right", "pan_right"),
        ("A paper boat drifts right", "right"),
        ("a wheel spinning anticlockwise", "counterclockwise"),
        ("a balloon grows", "zoom_in"),
        ("a cat sits on the left", None),
        ("a ball moves left, then moves right", None),
        ("the kite is not moving left", None),
        ("a ball rolls left, static camera", "left"),
        ("The camera does not move; a disc spins", "camera_static"),
        ("a dog runs to the left", "left"),
        ("a vase that stands still", "static"),
        ("a still camera, a boy juggles", "camera_static"),
        ("The camera zooms in and rolls clockwise", None),
        ("The camera moves up and then pans left", None),
        ("The camera pans left and a ball rolls right", "pan_left"),
        ("", None),
    ],
)
def test_directions(prompt, direction):
    assert direction_by_rules(prompt) == direction


@pytest.mark.parametrize(
    ("words", "direction"),
    [
        ("zoom in", "camera_zoom_in"), ("zoom out", "camera_zoom_out"), ("pan left", "pan_left"), ("pan right", "pan_right"),
        ("tilt up", "tilt_up"), ("tilt down", "tilt_down"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "scene",
    ["Small waves run up a beach in spring", "A squirrel eating nuts on a bench", "An astronaut drifts past a station, sunset"],
)
def test_directions_of_prompts_written_as_vbench_writes_its_camera_prompts(scene, words, direction):
    """The movement stands after the last comma, without the word camera; the scene may have a motion of its own."""
    assert direction_by_rules(f"{scene}, {words}") == direction


def test_a_direction_is_the_labels_where_the_label_has_one():
    for prompt in load_prompts():
        label = label_by_rules(prompt.text)
        assert label.direction is None or direction_by_rules(prompt.text) in (label.direction, f"camera_{label.direction}"), (
            prompt
        )


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


def test_a_flower_does_not_flow():
    assert direction_by_rules("a picture of a flower stays still") == "static"
    assert label_by_rules("a river flows past flowers").motion == "other"
