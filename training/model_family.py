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
    limits = {
        "spectral": config.sigma_max,
        "anchored": config.sigma_max,
        "repaired": config.repaired_sigma_max,
        "flow": config.flow_sigma_max,
    }
    for name, limit in limits.items():
        if name in config.active and config.motion_sigma == "smooth" and family.sigma_range[0] >= limit:
            raise ConfigError(
                f"expert={config.expert} sees noise levels from {family.sigma_range[0]:g} up, where {name} has faded out (its "
                f"sigma_max is {limit:g}): raise that, use objective=none, or train the other expert"
            )
    if family.path_from_scheduler:
        family.load("scheduler", config.model)
    return replace(config, family=family.spec.name), family
