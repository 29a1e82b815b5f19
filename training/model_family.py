"""The family of a run's base model, and the settings that only the model can complete."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from phys_pipeline.errors import ConfigError, ModelError, first_line
from phys_pipeline.families import VideoFamily, find_family
from training.config import TrainConfig


def model_family(config: TrainConfig, open_points: list[str] | None = None) -> tuple[TrainConfig, VideoFamily]:
    """The settings with the name of the family of `config.model`, and the family, told the clips' frame rate and what it has to
    know of the model: its experts, its noise schedule.

    Raises ConfigError or ModelError where the family is unknown, hasn't that expert, or its files are not there; with
    `open_points` a Hub's model that can't be fetched is only noted there.
    """
    family = find_family(config.model, config.family)
    family.fps = config.fps
    try:
        family.choose_expert(config.expert, config.model)
        if family.path_from_scheduler:
            family.load("scheduler", config.model)
    except ModelError as error:
        if open_points is None or config.model.count("/") != 1 or Path(config.model).exists():
            raise
        open_points.append(f"experts and noise schedule of {config.model}: {first_line(error)}")
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
    return replace(config, family=family.spec.name), family
