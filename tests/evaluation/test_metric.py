import math

import numpy as np
import pytest

from phys_pipeline.evaluation.metric import MetricInfo, MetricResult, failed, skipped


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_is_finite(value):
    with pytest.raises(ValueError, match="finite"):
        MetricResult(value)


@pytest.mark.parametrize(("value", "status"), [(None, "ok"), (None, "standin"), (1.0, "skipped"), (1.0, "failed")])
def test_status_and_value_agree(value, status):
    with pytest.raises(ValueError, match=f"status {status}"):
        MetricResult(value, status, "why")


def test_no_value_has_a_reason():
    with pytest.raises(ValueError, match="needs a reason"):
        MetricResult(None, "skipped")
    assert skipped("too short").reason == "too short" and failed("broken").status == "failed"


def test_a_range_forgives_the_rounding_of_single_precision_and_no_more():
    info = MetricInfo("x", "X", "share", "up", (), "made up", low=0.0, high=1.0)
    assert info.contains(float(np.float32(1) + np.finfo(np.float32).eps)) and info.contains(-1e-8)
    assert not info.contains(1.001) and not info.contains(-0.001)
    assert MetricInfo("x", "X", "px", "up", (), "made up").contains(-1e9)
