import pytest
from tiny import tiny_transformer

from phys_pipeline.families import get_family
from training.config import TrainConfig
from training.dry_run import estimate_memory
from training.launch import start_accelerator
from training.placement import place
from training.quantization import PACKAGES, quantize_blocks
from training.sharding import transformer_blocks
from training.weights import attach

pytestmark = pytest.mark.usefixtures("fresh_accelerate_state")


def placed(**changes):
    """A model with an adapter as a run would hold it, on the one device of this process."""
    config = TrainConfig(rank=2, precision="fp32", gradient_checkpointing=True, **changes)
    accelerator = start_accelerator(config)
    model = tiny_transformer(num_layers=2)
    everything = sum(p.numel() for p in model.parameters())
    if config.base_quantization != "none":
        quantize_blocks(model, config.base_quantization, accelerator.device)
    parameters = attach(model, config, get_family("hunyuan_video"))
    fresh = tiny_transformer(num_layers=2)
    trained = sum(p.numel() for p in attach(fresh, config, get_family("hunyuan_video")))
    memory = estimate_memory(config, fresh, everything, trained, tokens=10)
    return model, place(model, parameters, config, accelerator), memory


def test_one_process_trains_the_model_itself():
    model, result, _ = placed()
    assert result.model is model and all(p.requires_grad for p in result.parameters)
    frozen = {name for name, p in model.named_parameters() if not p.requires_grad}
    assert set(model._ddp_params_and_buffers_to_ignore) == frozen and frozen  # processes don't send each other the base
    optimised = [p for group in result.optimizer.param_groups for p in group["params"]]
    assert all(a is b for a, b in zip(optimised, result.parameters, strict=True))
    with result.no_sync():
        pass


def held(model):
    """Bytes of the frozen weights on the device."""
    return sum(p.untyped_storage().nbytes() for p in model.parameters() if not p.requires_grad)


def test_estimated_bytes_of_weights_are_those_that_are_held():
    model, _, memory = placed()
    whole = held(model)
    assert memory.weights == whole
    model, _, memory = placed(block_offload=True)
    blocks = [sum(p.numel() * 4 for p in b.parameters() if not p.requires_grad) for b in transformer_blocks(model)]
    assert held(model) == whole - sum(blocks) and memory.weights == held(model) + max(blocks)


@pytest.mark.parametrize("kind", ["int8", "nf4"])
def test_estimated_bytes_of_a_quantised_base_are_near(kind):
    pytest.importorskip(PACKAGES[kind])
    model, _, memory = placed(base_quantization=kind)
    found = 0
    for parameter in (p for p in model.parameters() if not p.requires_grad):
        if kind == "int8" and hasattr(parameter, "qdata"):
            found += parameter.qdata.nbytes
        elif hasattr(parameter, "quant_state"):
            found += parameter.nbytes + parameter.quant_state.absmax.nbytes
        else:
            found += parameter.nbytes
    assert memory.weights == pytest.approx(found, rel=0.02)  # int8: scales are left out; nf4: the last group of 64 is padded
