"""Noise paths: the round-trip law, timesteps, and the laws of sigma."""

import math

import pytest
import torch

from phys_pipeline.errors import ConfigError
from phys_pipeline.noise_path import SIGMA_LAWS, RectifiedFlow, VariancePreserving, fraction_below, shift_sigma, sigma_at


def _ddpm_table(steps=1000):
    return torch.cumprod(1 - torch.linspace(1e-4, 0.02, steps, dtype=torch.float64), 0)


PATHS = {
    "flow_n-x0_noise": RectifiedFlow(),
    "flow_x0-n_noise": RectifiedFlow(sign=-1),
    "flow_n-x0_data": RectifiedFlow(time="data"),
    "flow_x0-n_data_unit": RectifiedFlow(sign=-1, time="data", scale=1.0),
    "vp_v": VariancePreserving(_ddpm_table(), "v"),
    "vp_eps": VariancePreserving(_ddpm_table(), "eps"),
    "vp_v_zero_terminal": VariancePreserving(torch.tensor([0.999, 0.5, 0.0]), "v"),
}


def _case(dtype, seed=0):
    g = torch.Generator().manual_seed(seed)
    x0 = torch.randn(5, 4, 3, 6, 2, generator=g, dtype=torch.float64).to(dtype)
    noise = torch.randn(5, 4, 3, 6, 2, generator=g, dtype=torch.float64).to(dtype)
    return x0, noise, torch.tensor([0.0, 0.01, 0.37, 0.98733, 1.0])


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
def test_clean_inverts_target(path):
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 3e-4)):
        x0, noise, sigma = _case(dtype)
        recovered = path.clean(path.target(x0, noise, sigma), path.corrupt(x0, noise, sigma), sigma)
        assert recovered.dtype == dtype
        assert (recovered - x0).abs().max() < tolerance


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
def test_ends_of_the_path(path):
    x0, noise, _ = _case(torch.float64)
    ends = torch.tensor([0.0, 0.0, 1.0, 1.0, 1.0])
    x_t = path.corrupt(x0, noise, ends)
    assert torch.corrcoef(torch.stack([x_t[0].flatten(), x0[0].flatten()]))[0, 1] > 0.999
    assert torch.corrcoef(torch.stack([x_t[2].flatten(), noise[2].flatten()]))[0, 1] > 0.99


def test_rectified_flow_known_values():
    x0, noise, sigma = torch.tensor([[2.0]]), torch.tensor([[6.0]]), torch.tensor([0.25])
    path = RectifiedFlow()
    assert path.corrupt(x0, noise, sigma).item() == 3.0
    assert path.target(x0, noise, sigma).item() == 4.0
    assert RectifiedFlow(sign=-1).target(x0, noise, sigma).item() == -4.0
    assert path.timestep(sigma).item() == 250.0
    assert RectifiedFlow(time="data").timestep(sigma).item() == 750.0
    assert RectifiedFlow(scale=1.0).timestep(sigma).item() == 0.25


def test_variance_preserving_known_values():
    path = VariancePreserving([0.64, 0.36], "v")
    x0, noise, sigma = torch.tensor([[1.0]]), torch.tensor([[2.0]]), torch.tensor([0.0])
    assert path.corrupt(x0, noise, sigma).item() == pytest.approx(0.8 + 0.6 * 2)
    assert path.target(x0, noise, sigma).item() == pytest.approx(0.8 * 2 - 0.6)
    assert VariancePreserving([0.64, 0.36], "eps").target(x0, noise, sigma).item() == 2.0
    steps = VariancePreserving(_ddpm_table(), "v").timestep(torch.tensor([0.0, 0.5, 1.0]))
    assert steps.dtype == torch.int64 and steps.tolist() == [0, 500, 999]


def test_bfloat16_latents_do_not_round_sigma():
    sigma = torch.tensor([0.98733])
    x0, noise = torch.ones(1, 4, dtype=torch.bfloat16), torch.zeros(1, 4, dtype=torch.bfloat16)
    x_t = RectifiedFlow().corrupt(x0, noise, sigma)
    assert x_t.dtype == torch.float32 and torch.allclose(x_t, 1 - sigma)
    assert RectifiedFlow().timestep(sigma).item() == pytest.approx(987.33, abs=1e-3)


def test_clean_passes_gradients():
    x0, _, sigma = _case(torch.float32)
    prediction = torch.zeros_like(x0, requires_grad=True)
    RectifiedFlow().clean(prediction, x0, sigma).sum().backward()
    assert torch.allclose(prediction.grad[:, 0, 0, 0, 0], -sigma)


@pytest.mark.parametrize("shift", [1.0, 3.0, 7.0])
@pytest.mark.parametrize("law", SIGMA_LAWS)
def test_quantiles_match_the_shift_formula_once_not_twice(law, shift):
    sigma = RectifiedFlow().sample(200_000, torch.Generator().manual_seed(0), law, shift)
    assert sigma.dtype == torch.float32 and sigma.shape == (200_000,)
    assert sigma.min() >= 0 and sigma.max() <= 1
    q = torch.linspace(0.05, 0.95, 19, dtype=torch.float64)
    u = torch.sigmoid(math.sqrt(2) * torch.erfinv(2 * q - 1)) if law == "logit_normal" else q
    once = shift_sigma(u, shift)
    measured = torch.quantile(sigma.double(), q)
    assert (measured - once).abs().max() < 0.005
    if shift > 1:
        assert (measured - shift_sigma(once, shift)).abs().max() > 0.05


def test_shift_known_value():
    assert shift_sigma(torch.tensor([0.0, 0.5, 1.0]), 7.0).tolist() == pytest.approx([0.0, 0.875, 1.0])


def test_stratified_batches_always_cover_low_noise():
    g = torch.Generator().manual_seed(1)
    path, orders = RectifiedFlow(), set()
    for _ in range(50):
        sigma = path.sample(8, g, "stratified")
        assert torch.equal((sigma * 8).floor().sort().values, torch.arange(8.0))
        orders.add(tuple((sigma * 8).floor().int().tolist()))
    assert len(orders) > 40  # which sample gets the low noise is random
    uniform_lows = [int((path.sample(8, g, "uniform") < 0.125).sum()) for _ in range(50)]
    assert 0 in uniform_lows  # plain draws do miss


def test_sample_is_seeded_and_leaves_the_global_generator_alone():
    state = torch.get_rng_state()
    for law in SIGMA_LAWS:
        a = RectifiedFlow().sample(16, torch.Generator().manual_seed(3), law, 7.0)
        b = RectifiedFlow().sample(16, torch.Generator().manual_seed(3), law, 7.0)
        assert torch.equal(a, b)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("law", SIGMA_LAWS)
def test_fraction_below_is_the_empirical_share(law):
    sigma = RectifiedFlow().sample(200_000, torch.Generator().manual_seed(0), law, 3.0)
    for threshold in (0.3, 0.5, 0.7):
        assert fraction_below(threshold, law, 3.0) == pytest.approx((sigma < threshold).double().mean().item(), abs=0.004)
    assert fraction_below(0.0, law) == 0 and fraction_below(1.0, law) == 1
    assert fraction_below(0.5, "uniform", 7.0) == pytest.approx(0.125)


@pytest.mark.parametrize("law", SIGMA_LAWS)
def test_a_span_keeps_the_law_as_it_is_there(law):
    for low, high in ((0.0, 0.875), (0.875, 1.0), (0.2, 0.6)):
        sigma = RectifiedFlow().sample(50_000, torch.Generator().manual_seed(0), law, 3.0, span=(low, high))
        assert sigma.dtype == torch.float32 and low <= sigma.min() and sigma.max() <= high
        start, end = (fraction_below(value, law, 3.0) for value in (low, high))
        for share in (0.25, 0.5, 0.75):
            there = sigma_at(torch.tensor(share, dtype=torch.float64), law, 3.0, (low, high)).item()
            assert (fraction_below(there, law, 3.0) - start) / (end - start) == pytest.approx(share, abs=1e-5)
            assert (sigma < there).double().mean().item() == pytest.approx(share, abs=0.01)
    whole = RectifiedFlow().sample(8, torch.Generator().manual_seed(0), law, 3.0)
    assert torch.equal(whole, RectifiedFlow().sample(8, torch.Generator().manual_seed(0), law, 3.0, span=(0.0, 1.0)))
    with pytest.raises(ConfigError, match=r"no noise level lies between 0\.5 and 0\.5"):
        RectifiedFlow().sample(1, law=law, span=(0.5, 0.5))


@pytest.mark.parametrize(
    "call",
    [
        lambda: RectifiedFlow(sign=2),
        lambda: RectifiedFlow(time="later"),
        lambda: RectifiedFlow(scale=0),
        lambda: VariancePreserving([0.9, 1.1]),
        lambda: VariancePreserving([0.9, 0.0], "eps"),
        lambda: VariancePreserving([0.9, 0.5], "x0"),
        lambda: RectifiedFlow().sample(4, law="normal"),
        lambda: RectifiedFlow().sample(4, shift=0.0),
        lambda: RectifiedFlow().sample(0),
        lambda: RectifiedFlow().timestep(torch.tensor([0.5], dtype=torch.bfloat16)),
        lambda: RectifiedFlow().timestep(torch.tensor(0.5)),
        lambda: RectifiedFlow().corrupt(torch.zeros(3, 2), torch.zeros(3, 2), torch.zeros(1)),
    ],
)
def test_wrong_arguments_are_config_errors(call):
    with pytest.raises(ConfigError):
        call()
