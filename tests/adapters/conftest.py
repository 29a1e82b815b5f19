"""A pipeline, one with a trained LoRA, and that LoRA on disk."""

import pytest
from tiny import tiny_pipeline
from tiny_adapter import ALPHA, RANK, fill, save

from phys_pipeline.adapters import inject_lora


@pytest.fixture
def pipeline():
    return tiny_pipeline()


@pytest.fixture(scope="module")
def trained():
    """A pipeline with a LoRA whose alpha differs from its rank and whose weights are not at their start."""
    pipeline = tiny_pipeline()
    fill(inject_lora(pipeline.transformer, RANK, ALPHA, seed=0))
    return pipeline


@pytest.fixture(scope="module")
def saved(trained, tmp_path_factory):
    return save(trained, tmp_path_factory.mktemp("adapters") / "good")
