"""torch.compile leaves the loss as it is; torch.func transforms are refused with a reason."""

import pytest
import torch

from phys_pipeline.media.synthetic import textured_clip
from phys_pipeline.spectral import SpectralMotionLoss


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def clip() -> torch.Tensor:
    return textured_clip(velocity=(1.0, 0.3), frames=8, height=24, width=24, seed=1).video[None]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_training_step_has_the_same_loss_and_gradient(backend):
    layer, loss = torch.nn.Conv3d(3, 3, 1), SpectralMotionLoss()

    def step(video: torch.Tensor) -> torch.Tensor:
        return loss(0.1 * layer(video) + video).loss

    plain = step(clip())
    (expected,) = torch.autograd.grad(plain, layer.weight)
    compiled = torch.compile(step, backend=backend)(clip())
    (found,) = torch.autograd.grad(compiled, layer.weight)
    torch.testing.assert_close(compiled, plain)
    torch.testing.assert_close(found, expected)


def test_a_full_graph_is_refused():
    with pytest.raises(torch._dynamo.exc.Unsupported, match="_NOT_TRACED"):
        torch.compile(SpectralMotionLoss(), backend="eager", fullgraph=True)(clip())


def test_function_transforms_are_refused_with_what_to_do():
    loss = SpectralMotionLoss()
    with pytest.raises(RuntimeError, match=r"reduction='none'"):
        torch.func.vmap(lambda video: loss(video[None]).loss)(clip())
    with pytest.raises(RuntimeError, match=r"use torch\.autograd"):
        torch.func.grad(lambda video: loss(video).loss)(clip())
