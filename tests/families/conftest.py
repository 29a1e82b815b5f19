"""The tiny random pipeline, on disk and loaded."""

import pytest
from tiny import save_tiny

from phys_pipeline.families import get_family, load_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("hunyuan") / "tiny")


@pytest.fixture(scope="module")
def model(folder):
    return load_model(str(folder))


@pytest.fixture
def family():
    return get_family("hunyuan_video")
