import pytest
import torch
from tiny import tiny_transformer
from training_run import ADAPTER, make_base, records, settings

from phys_pipeline.adapters import inject_lora
from phys_pipeline.families import get_family
from training.loop import train
from training.offload import BlockOffload

CPU = torch.device("cpu")


def model_and_parameters():
    model = tiny_transformer(num_layers=3, num_single_layers=2)
    parameters = inject_lora(model, rank=2, seed=0)
    with torch.no_grad():
        for p in parameters:
            p.add_(0.01)  # B starts at 0, and then nothing flows into A
    model.enable_gradient_checkpointing()
    return model.train(), parameters


def loss_of(model):
    generator, c = torch.Generator().manual_seed(0), model.config
    text = {"prompt_embeds": (2, 7, c.text_embed_dim), "pooled_prompt_embeds": (2, c.pooled_projection_dim)}
    conditioning = {name: torch.randn(shape, generator=generator) for name, shape in text.items()}
    conditioning["prompt_attention_mask"] = torch.ones(2, 7)
    x = torch.randn(2, 4, 2, 2, 2, generator=generator)
    inputs = get_family("hunyuan_video").inputs(x, torch.tensor([0.3, 0.6]), conditioning)
    return model(**inputs)[0].square().mean()


def away(offload):
    return [all(p.untyped_storage().size() == 0 for p, _ in offload.masters[block]) for block in offload.blocks]


def test_losses_and_gradients_are_bit_equal_and_one_block_at_most_is_there():
    model, parameters = model_and_parameters()
    expected = loss_of(model)
    gradients = torch.autograd.grad(expected, parameters)
    other, others = model_and_parameters()
    offload, most, seen = BlockOffload(other, CPU), [], []
    assert all(away(offload)) and all(offload.masters[block] for block in offload.blocks)
    for block in offload.blocks:
        block.register_forward_pre_hook(lambda block, _: seen.append(block))
        for module in block.modules():  # while anything in a block computes, no other block is there
            module.register_forward_pre_hook(lambda *_: most.append(away(offload).count(False)))
    loss = loss_of(other)
    assert torch.equal(loss, expected) and all(away(offload))
    first = torch.autograd.grad(loss, others, retain_graph=True)  # as when two losses' gradients are compared
    assert all(away(offload))
    loss.backward()
    assert all(away(offload)) and offload.resident is None
    assert all(torch.equal(a, b) for a, b in zip(gradients, first, strict=True))
    assert all(torch.equal(a, b.grad) for a, b in zip(gradients, others, strict=True))
    assert set(most) == {1} and seen == [*offload.blocks, *2 * offload.blocks[::-1]]
    assert all(p.untyped_storage().size() > 0 for p in others)


def test_without_gradients_too():
    model, _ = model_and_parameters()
    other, _ = model_and_parameters()
    offload = BlockOffload(other, CPU)
    with torch.no_grad():
        assert torch.equal(loss_of(model.eval()), loss_of(other.eval())) and all(away(offload))


def test_an_error_in_a_block_leaves_nothing_there():
    model, _ = model_and_parameters()
    offload = BlockOffload(model, CPU)
    model.transformer_blocks[1].norm1.register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        loss_of(model)
    assert all(away(offload)) and offload.resident is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_cuda_device_holds_one_block():
    model, parameters = model_and_parameters()
    other, others = model_and_parameters()
    device = torch.device("cuda")
    offload = BlockOffload(other, device)
    assert all(master.is_pinned() for pairs in offload.masters.values() for _, master in pairs)
    assert {p.device.type for p in other.parameters()} == {"cuda"}
    loss_of(model).backward()
    inputs_on = other.register_forward_pre_hook(
        lambda _, args, kwargs: (args, {k: v.to(device) if torch.is_tensor(v) else v for k, v in kwargs.items()}),
        with_kwargs=True,
    )
    loss_of(other).backward()
    inputs_on.remove()
    assert all(torch.allclose(a.grad, b.grad.cpu(), rtol=1e-3, atol=1e-6) for a, b in zip(parameters, others, strict=True))
    assert all(away(offload))


@pytest.mark.usefixtures("fresh_accelerate_state")
def test_a_run_leaves_the_same_adapter(tmp_path):
    base = make_base(tmp_path / "base")
    changes = {"max_train_steps": 2, "gradient_checkpointing": True, "gradient_ratio_every": 1, "trackers": []}
    changes |= {"sigma_max": 1.0, "objective": ["spectral", "preference"], "preference_space": "pixel", "checkpoint_every": 0}
    changes |= {"validation_prompts": ["a ball"]}
    for name, offload in (("plain", False), ("offload", True)):
        train(settings(base, tmp_path / name, block_offload=offload, **changes), progress=False)
    assert (tmp_path / "plain" / ADAPTER).read_bytes() == (tmp_path / "offload" / ADAPTER).read_bytes()
    a, b = ([{**r, "seconds": 0} for r in records(tmp_path / name)] for name in ("plain", "offload"))
    assert a == b
