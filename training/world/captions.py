"""How the world's scenes are worded, and the label that each caption asks for."""

from __future__ import annotations

import numpy as np

from training.world.scenes import CAMERAS, EVENTS, PHOTOGRAPHS, Scene, all_pairs

_WORDINGS: dict[str, tuple[str, ...]] = {  # the first is the canonical one
    "moves left": ("moves left", "moves to the left", "is moving left", "slides left"),
    "moves right": ("moves right", "moves to the right", "is moving right", "slides right"),
    "moves up": ("moves up", "moves upward", "is moving up"),
    "moves down": ("moves down", "moves downward", "is moving down"),
    "rotates clockwise": ("rotates clockwise", "is rotating clockwise", "turns clockwise"),
    "rotates counterclockwise": ("rotates counterclockwise", "is rotating counterclockwise", "turns counterclockwise"),
    "grows": ("grows", "is growing", "becomes larger"),
    "shrinks": ("shrinks", "is shrinking", "becomes smaller"),
    "stays still": ("stays still", "is still", "does not move"),
    "falls and bounces": ("falls and bounces", "falls down and bounces", "drops and bounces"),
    "rolls left": ("rolls left", "is rolling left", "rolls to the left"),
    "rolls right": ("rolls right", "is rolling right", "rolls to the right"),
    "flies left": ("flies left", "is flying left", "flies to the left"),
    "flies right": ("flies right", "is flying right", "flies to the right"),
    "spins clockwise": ("spins clockwise", "spins clockwise and slows down"),
    "spins counterclockwise": ("spins counterclockwise", "spins counterclockwise and slows down"),
    "swings": ("swings", "swings to and fro"),
    "hits": ("hits", "bumps into"),
}
_CAMERA_WORDINGS = {word: (f"the camera {word}", f"camera {word}") for word in CAMERAS}
_LABELS: dict[str, str] = {
    "moves left": "left", "moves right": "right", "moves up": "up", "moves down": "down", "rotates clockwise": "clockwise",
    "rotates counterclockwise": "counterclockwise", "grows": "zoom_in", "shrinks": "zoom_out", "stays still": "static",
    "falls and bounces": "down", "rolls left": "left", "rolls right": "right", "flies left": "left", "flies right": "right",
    "spins clockwise": "clockwise", "spins counterclockwise": "counterclockwise",
    "pans left": "pan_left", "pans right": "pan_right", "tilts up": "tilt_up", "tilts down": "tilt_down",
    "zooms in": "camera_zoom_in", "zooms out": "camera_zoom_out", "rolls clockwise": "roll_clockwise",
    "rolls counterclockwise": "roll_counterclockwise",
}  # fmt: skip


def direction_of(scene: Scene) -> str | None:
    """The direction label (as in ``phys-pipeline evaluate``) of a scene with one motion; None for mixtures and to-and-fro."""
    words = [word for word in scene.words if not (scene.camera and word == "stays still")]
    return _LABELS.get(words[0]) if len(words) == 1 else None


def write_caption(scene: Scene, rng: np.random.Generator | None = None, paraphrase: float = 0.0) -> str:
    """The canonical caption, or with probability ``paraphrase`` other words: "a red square moves right, the camera pans left"."""
    free = rng is not None and rng.random() < paraphrase

    def worded(options: tuple[str, ...]) -> str:
        return options[int(rng.integers(len(options)))] if free and rng is not None else options[0]

    thing = f"a picture of a {scene.subject}" if scene.kind == "photograph" else f"a {scene.subject}"
    camera = worded(_CAMERA_WORDINGS[scene.camera]) if scene.camera else ""
    if not scene.motions:
        return f"{thing}, {camera}"
    actions = " and ".join(worded(_WORDINGS[motion]) for motion in scene.motions)
    text = f"{thing} {actions}"
    if scene.other:
        text += f" a {scene.other} {scene.subject.split()[-1]}"
    return f"{text}, {camera}" if camera else text


def vocabulary() -> list[str]:
    """Texts that hold every word of every caption, for the tokenizers."""
    subjects = sorted({subject for subject, _ in all_pairs()})
    things = [f"a picture of a {name}" if name in PHOTOGRAPHS else f"a {name}" for name in subjects]
    actions = [text for options in (*_WORDINGS.values(), *_CAMERA_WORDINGS.values()) for text in options]
    return [f"{thing} {action} and" for thing in things for action in actions[:: len(EVENTS)]] + [
        f"a red square {action}, and" for action in actions
    ]
