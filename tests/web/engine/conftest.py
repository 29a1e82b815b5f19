"""A random model and adapter on the disk, and settings that offer it."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="package")
def model_folder(tmp_path_factory):
    from tiny import save_tiny

    return save_tiny(tmp_path_factory.mktemp("web") / "model")


@pytest.fixture(scope="package")
def adapter_folder(tmp_path_factory):
    import torch
    from tiny import tiny_pipeline

    from phys_pipeline.adapters import inject_lora, save_adapter

    pipeline, g = tiny_pipeline(), torch.Generator().manual_seed(1)
    for parameter in inject_lora(pipeline.transformer, 4, 8.0, seed=0):
        parameter.data.add_(0.3 * torch.randn(parameter.shape, generator=g))
    folder = tmp_path_factory.mktemp("web") / "adapter"
    save_adapter(pipeline.transformer, folder, family="hunyuan_video", base_model="tiny")
    return folder


@pytest.fixture
def settings(tmp_path, model_folder):
    from phys_pipeline.web.engine.settings import AppSettings

    return AppSettings(tmp_path / "app", models=(str(model_folder),))
