"""Adapters that come with the package."""

from phys_pipeline.adapters.embedded import demo_pair, embedded_adapters


def test_embedded_adapters_fit_the_embedded_model():
    from phys_pipeline.adapters import load_adapter
    from phys_pipeline.families import load_model

    adapters = embedded_adapters()
    if adapters:
        assert load_adapter(load_model(), next(iter(adapters.values())).folder).tensors > 0


def test_an_adapter_of_another_revision_is_left_out(monkeypatch):
    from phys_pipeline.families import sources

    if embedded_adapters():
        monkeypatch.setattr(sources, "description", lambda source: {"revision": "another"})
        assert embedded_adapters() == {}


def test_the_demos_pair_is_a_prompt_and_a_seed():
    prompt, seed = demo_pair()
    assert prompt.startswith("a ") and seed >= 0
