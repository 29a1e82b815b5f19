import pytest

from phys_pipeline.errors import ConfigError
from phys_pipeline.evaluation import registry


def test_groups_and_keys_select_in_registry_order(fakes):
    assert registry.select(["frame_count", "brightness"]) == ("brightness", "frame_count")
    assert registry.select(["noweights"]) == registry.select(["all"]) == tuple(registry.infos())
    assert registry.classes_of(["frame_count"]) == ("evaluation.fake_metrics:Brightness",)


def test_unknown_names_are_refused_with_a_hint(fakes):
    with pytest.raises(ConfigError, match="did you mean brightness"):
        registry.select(["brightnes"])
    with pytest.raises(ConfigError, match="groups are all, noweights"):
        registry.select(["zzz"])
    with pytest.raises(ConfigError, match="no metric was asked for"):
        registry.select([])


def test_two_metrics_cannot_share_a_key(fakes, monkeypatch):
    monkeypatch.setattr(registry, "CLASSES", registry.CLASSES[:1] * 2)
    registry.infos.cache_clear()
    with pytest.raises(ValueError, match="two metrics are called brightness"):
        registry.infos()
