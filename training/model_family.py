"""The family of a run's base model, and the settings that only the model can complete."""

from __future__ import annotations

from dataclasses import replace

from phys_pipeline.errors import ConfigError
from phys_pipeline.families import VideoFamily, find_family
from training.config import TrainConfig


def model_family(config: TrainConfig) -> tuple[TrainConfig, VideoFamily]:
    """The family of `config.model`, told the clips' frame rate and the expert to train, and the settings with its name.

    Raises ConfigError or ModelError where the family is unknown or hasn't that expert.
    """
    family = find_family(config.model, config.family)
    family.fps = config.fps
    family.choose_expert(config.expert, config.model)
    if family.expert and config.validation_prompts:
        raise ConfigError("validation_prompts need both experts: hold clips out with validation_split, and generate afterwards")
    if family.path_from_scheduler:
        family.load("scheduler", config.model)
    return replace(config, family=family.spec.name), family
