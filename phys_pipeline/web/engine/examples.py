"""Prompts by motion type that the chosen model was taught."""

from __future__ import annotations

from phys_pipeline.adapters.embedded import demo_pair
from phys_pipeline.evaluation.prompts.prompt_set import load_prompts
from phys_pipeline.families.sources import description

_EMBEDDED = {  # of the embedded model's world, after the demo's
    "translation": ["a red square moves right", "a blue circle moves up"],
    "rotation": ["a blue bar rotates clockwise", "a green arrow rotates counterclockwise"],
    "scaling": ["a yellow star grows", "a purple circle shrinks"],
    "event": ["a green square falls and bounces", "a white circle rolls left"],
    "camera": ["a picture of a cat, the camera pans left", "a picture of a temple, the camera zooms in"],
    "still": ["a white square stays still"],
}
_EACH = 3


def example_prompts(source: str) -> dict[str, list[str]]:
    """``{motion type: prompts}``: those of the model's ``phys_pipeline.json`` ("examples"), else by its kind."""
    described = description(source).get("examples")
    if isinstance(described, dict) and described:
        return {str(kind): [str(prompt) for prompt in prompts] for kind, prompts in described.items()}
    if source == "tiny":
        return {"the demo": [demo_pair()[0]], **_EMBEDDED}
    found: dict[str, list[str]] = {}
    for prompt in load_prompts(None):
        motion = (prompt.label.sample_labels() if prompt.label else {}).get("motion", "other")
        if len(found.setdefault(str(motion), [])) < _EACH:
            found[str(motion)].append(prompt.text)
    return found
