"""Prompts that the app offers for a model."""

from __future__ import annotations

import json
import re

from tiny import save_tiny

from phys_pipeline.adapters.embedded import demo_pair
from phys_pipeline.web.engine.examples import example_prompts
from training.world.captions import vocabulary


def test_the_embedded_models_prompts_begin_with_the_demo_and_use_words_of_its_world():
    groups = example_prompts("tiny")
    prompts = [prompt for group in groups.values() for prompt in group]
    assert prompts[0] == demo_pair()[0]
    assert len(set(prompts)) == len(prompts) > 10
    taught = set(re.findall(r"\w+", " ".join(vocabulary())))
    assert {word for prompt in prompts for word in re.findall(r"\w+", prompt)} <= taught


def test_a_model_may_bring_its_own_and_any_other_gets_three_of_each_motion_of_the_prompt_set(tmp_path):
    folder = save_tiny(tmp_path / "model")
    others = example_prompts(str(folder))
    assert {"translation", "rotation", "scaling"} <= set(others) and {len(group) for group in others.values()} <= {1, 2, 3}
    described = json.loads((folder / "phys_pipeline.json").read_text())
    described["examples"] = {"mine": ["a kite climbs"]}
    (folder / "phys_pipeline.json").write_text(json.dumps(described))
    assert example_prompts(str(folder)) == {"mine": ["a kite climbs"]}
