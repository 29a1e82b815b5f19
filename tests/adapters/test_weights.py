"""LoRA algebra against the matrices that it stands for."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from phys_pipeline.adapters.weights import LoraLayer, distance, fuse, split, swap_halves


def layer(rank, rows, columns=6, alpha=3.0, seed=0):
    g = torch.Generator().manual_seed(seed)
    return LoraLayer(torch.randn(rank, columns, generator=g), torch.randn(rows, rank, generator=g), alpha)


def close(a, b):
    return (a - b).abs().max() <= 1e-6 * max(1.0, b.abs().max())


parts = st.lists(st.none() | st.tuples(st.integers(1, 5), st.floats(0.1, 50)), min_size=1, max_size=4)


@given(parts.filter(any), st.lists(st.integers(1, 7), min_size=4, max_size=4))
@settings(max_examples=60, deadline=None)
def test_fusing_stacks_the_changes_and_splitting_undoes_it(given_parts, rows):
    rows = rows[: len(given_parts)]
    layers = [
        part and layer(part[0], n, alpha=part[1], seed=i) for i, (part, n) in enumerate(zip(given_parts, rows, strict=True))
    ]
    fused = fuse(layers, rows)
    expected = [torch.zeros(n, 6) if part is None else part.delta() for part, n in zip(layers, rows, strict=True)]
    assert close(fused.delta(), torch.cat(expected)) and fused.scale == 1
    back = split(fused, rows)
    for part, found in zip(layers, back, strict=True):
        assert (part is None) == (found is None)
        if part is not None:
            assert found.rank == part.rank and torch.equal(found.down, part.down) and close(found.delta(), part.delta())


@given(st.integers(1, 6), st.floats(0.01, 100), st.lists(st.integers(1, 5), min_size=1, max_size=4))
@settings(max_examples=40, deadline=None)
def test_a_layer_trained_as_one_splits_into_adapters_with_the_same_down(rank, alpha, rows):
    whole = layer(rank, sum(rows), alpha=alpha)
    back = split(whole, rows)
    assert close(torch.cat([part.delta() for part in back]), whole.delta())
    assert all(torch.equal(part.down, whole.down) and part.alpha == alpha for part in back)


def test_an_untrained_layer_keeps_all_its_parts():
    assert [part.rank for part in split(LoraLayer(torch.ones(3, 6), torch.zeros(8, 3), 1.0), [4, 4])] == [3, 3]


def test_norms_and_distances_are_those_of_the_matrices():
    a, b = layer(3, 5, seed=1), layer(2, 5, alpha=0.7, seed=2)
    assert a.squared_norm() == pytest.approx(a.delta().double().square().sum().item(), rel=1e-6)
    assert distance(a, b) == pytest.approx((a.delta() - b.delta()).double().norm().item(), rel=1e-6)
    assert distance(a, LoraLayer(a.down, 2 * a.up, a.alpha / 2)) < 1e-7 * a.squared_norm() ** 0.5


def test_halves_change_places():
    whole = layer(2, 6)
    assert torch.equal(swap_halves(whole).delta(), whole.delta().roll(3, 0))
