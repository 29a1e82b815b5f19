import gc
import weakref

import numpy as np
import pytest
from tiny_evaluation import noise, save_clip

from phys_pipeline.evaluation.metric import Settings
from phys_pipeline.evaluation.metrics.clip_encoder import clip_encoder


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return Settings(options={"clip.model": str(save_clip(tmp_path_factory.mktemp("clip") / "tiny_clip"))})


def test_metrics_share_one_model_while_one_holds_it(settings):
    first = clip_encoder(settings)
    assert clip_encoder(settings) is first
    held = weakref.ref(first)
    del first
    gc.collect()
    assert held() is None


def test_vectors_have_length_one_and_the_order_of_their_inputs(settings):
    encoder = clip_encoder(settings)
    texts = encoder.texts(["swimming", "a much longer text than that", "swimming"])
    assert np.linalg.norm(texts, axis=1) == pytest.approx([1, 1, 1])
    np.testing.assert_allclose(texts[0], texts[2])
    assert texts[0] @ texts[1] < 0.999
    np.testing.assert_allclose(texts[0], encoder.texts(["swimming"])[0], atol=1e-6)  # padding does not count


def test_frames_of_different_sizes(settings):
    encoder = clip_encoder(settings)
    frames = [noise(1)[0], noise(1, 64, 33)[0]]
    both = encoder.images(frames, "processor")
    np.testing.assert_allclose(both[1], encoder.images(frames[1:], "processor")[0], atol=1e-6)


def test_unit_preparation_is_raw_over_255(settings):
    encoder = clip_encoder(settings)
    frame = noise(1)[0]
    raw, unit = (encoder._prepared([frame], preparation) for preparation in ("raw", "unit"))
    np.testing.assert_allclose(unit * 255, raw, rtol=1e-6)
    assert unit.max() <= 1
