"""Scenes: shares, what is held out, and what playing backwards shows."""

from __future__ import annotations

from collections import Counter

import numpy as np

from training.world.scenes import (
    BACKWARDS,
    EVENTS,
    HELD_OUT_SHARE,
    KIND_SHARES,
    ONE_WAY,
    Scene,
    all_pairs,
    draw_scene,
    held_out_pairs,
    is_held_out,
)


def scenes(count: int, held_out: bool = False) -> list[Scene]:
    rng = np.random.default_rng(3)
    return [draw_scene(rng, held_out) for _ in range(count)]


def test_training_scenes_are_never_held_out_forwards_or_backwards():
    for scene in scenes(2000):
        assert not is_held_out(scene)
        reverse = scene.backwards()
        assert reverse is None or not is_held_out(reverse)


def test_held_out_scenes_are_held_out_and_every_motion_has_some():
    drawn = scenes(600, held_out=True)
    assert all(is_held_out(scene) for scene in drawn)
    assert {word for _, word in held_out_pairs()} == {word for _, word in all_pairs()}
    assert ("red square", "moves right") not in held_out_pairs()
    assert 0.08 < len(held_out_pairs()) / len(all_pairs()) < 1.5 * HELD_OUT_SHARE


def test_kinds_have_their_shares():
    counts = Counter(scene.kind for scene in scenes(3000))
    for kind, share in KIND_SHARES.items():
        assert abs(counts[kind] / 3000 - share) < 0.04
    assert {scene.motions[0] for scene in scenes(3000) if scene.kind == "event"} == set(EVENTS)


def test_backwards_twice_is_the_same_scene_and_events_have_no_reverse():
    for scene in scenes(300):
        reverse = scene.backwards()
        assert (reverse is None) == (scene.kind == "event")
        assert reverse is None or reverse.backwards() == scene
    assert not {BACKWARDS[word] for word in ONE_WAY} & set(ONE_WAY)
    moving = {word for word in BACKWARDS if word != "stays still"}
    assert {BACKWARDS[word] for word in ONE_WAY} | set(ONE_WAY) == moving


def test_a_scene_survives_as_plain_data():
    assert all(Scene.from_list(scene.to_list()) == scene for scene in scenes(100))


def test_simple_scenes_have_one_steady_motion():
    assert Scene("shape", "red square", ("moves right",)).simple
    assert Scene("photograph", "cat", camera="pans left").simple
    assert Scene("shape", "red square", ("stays still",), "pans left").simple
    assert not Scene("shape", "red square", ("moves right", "grows")).simple
    assert not Scene("event", "red circle", ("falls and bounces",)).simple
