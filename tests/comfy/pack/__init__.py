"""Nodes for tests: frames of any kind, conditioning without a text encoder, and a look at what arrives."""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from fractions import Fraction
from typing import Any

import torch
from comfy_api.latest import ComfyExtension, InputImpl, Types, io

from .frames import moving

_executed: list[str] = []  # markers of TestMark, in the order in which they ran


class TestFrames(io.ComfyNode):
    """A moving square, as a batch of any size and kind."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="Test_Frames",
            category="test",
            inputs=[
                io.Int.Input("frames", default=16, min=0, max=100_000),
                io.Int.Input("height", default=48, min=0),
                io.Int.Input("width", default=64, min=0),
                io.Int.Input("channels", default=3),
                io.String.Input("kind", default=""),
                io.Float.Input("speed", default=2.0, min=-100, max=100),
            ],
            outputs=[io.Image.Output()],
        )

    @classmethod
    def execute(cls, frames: int, height: int, width: int, channels: int, kind: str, speed: float) -> io.NodeOutput:
        return io.NodeOutput(moving(frames, height, width, channels, kind, speed))


class TestConditioning(io.ComfyNode):
    """What text encoders would give, random."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="Test_Conditioning",
            category="test",
            inputs=[io.Int.Input("seed", default=0), io.Int.Input("width", default=32, max=10_000, optional=True)],
            outputs=[io.Conditioning.Output()],
        )

    @classmethod
    def execute(cls, seed: int, width: int = 32) -> io.NodeOutput:
        generator = torch.Generator().manual_seed(seed)
        text, pooled = torch.randn(1, 7, width, generator=generator), torch.randn(1, 768, generator=generator)
        return io.NodeOutput([[text, {"pooled_output": pooled, "guidance": 6.0}]])


class TestLook(io.ComfyNode):
    """Shape, type and digest of anything, as text; and how far it is from a second thing."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="Test_Look",
            category="test",
            inputs=[io.AnyType.Input("value"), io.AnyType.Input("other", optional=True)],
            outputs=[],
            is_output_node=True,
        )

    @classmethod
    def execute(cls, value: Any, other: Any = None) -> io.NodeOutput:
        tensor, rest = _tensor(value), {}
        if other is not None:
            rest["difference"] = (tensor.float() - _tensor(other).float()).abs().max().item()
        if tensor is None:
            text = json.dumps({"value": value}, default=str)
        else:
            digest = hashlib.sha256(tensor.contiguous().cpu().numpy().tobytes()).hexdigest()
            rest |= {"finite": bool(torch.isfinite(tensor).all()), "low": tensor.min().item(), "high": tensor.max().item()}
            text = json.dumps({"shape": list(tensor.shape), "type": str(tensor.dtype), "digest": digest, **rest})
        return io.NodeOutput(ui={"text": (text,)})


def _tensor(value: Any) -> torch.Tensor | None:
    if isinstance(value, dict) and "samples" in value:
        value = value["samples"]
    if hasattr(value, "get_components"):
        value = value.get_components().images
    return value if isinstance(value, torch.Tensor) else None


class TestSize(io.ComfyNode):
    """How many bytes a batch has; it is not touched, so that no memory is taken."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(node_id="Test_Size", category="test", inputs=[io.Image.Input("value")], outputs=[], is_output_node=True)

    @classmethod
    def execute(cls, value: torch.Tensor) -> io.NodeOutput:
        return io.NodeOutput(ui={"text": (json.dumps({"bytes": value.numel() * value.element_size()}),)})


class TestMark(io.ComfyNode):
    """Gives on what it gets, and remembers that it ran."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="Test_Mark",
            category="test",
            inputs=[io.AnyType.Input("value"), io.String.Input("marker")],
            outputs=[io.AnyType.Output()],
        )

    @classmethod
    def execute(cls, value: Any, marker: str) -> io.NodeOutput:
        _executed.append(marker)
        return io.NodeOutput(value)


class TestMarks(io.ComfyNode):
    """The markers so far."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="Test_Marks", category="test", inputs=[io.Int.Input("now", default=0)], outputs=[], is_output_node=True
        )

    @classmethod
    def execute(cls, now: int) -> io.NodeOutput:
        return io.NodeOutput(ui={"text": (json.dumps(_executed),)})


class TestSlow(io.ComfyNode):
    """The model, with a pause before each of its calls; every call is written to a file."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="Test_Slow",
            category="test",
            inputs=[io.Model.Input("model"), io.Float.Input("seconds", default=0.5), io.String.Input("file")],
            outputs=[io.Model.Output()],
        )

    @classmethod
    def execute(cls, model: Any, seconds: float, file: str) -> io.NodeOutput:
        slow = model.clone()

        def call(apply: Any, given: dict[str, Any]) -> Any:
            with open(file, "a", encoding="ascii") as stream:
                stream.write("step\n")
            time.sleep(seconds)
            return apply(given["input"], given["timestep"], **given["c"])

        slow.set_model_unet_function_wrapper(call)
        return io.NodeOutput(slow)


class TestSlowPipeline(io.ComfyNode):
    """The pipeline, with a pause before each call of its transformer, written to a file; the call ``fail_at`` fails."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="Test_SlowPipeline",
            category="test",
            inputs=[
                io.Custom("T2V_PIPELINE").Input("pipeline"),
                io.Float.Input("seconds", default=0.0),
                io.String.Input("file"),
                io.Int.Input("fail_at", default=0),
            ],
            outputs=[io.Custom("T2V_PIPELINE").Output()],
        )

    @classmethod
    def execute(cls, pipeline: Any, seconds: float, file: str, fail_at: int) -> io.NodeOutput:
        transformer, calls = pipeline.model.pipeline.transformer, itertools.count(1)

        def before(*_: Any) -> None:
            with open(file, "a", encoding="ascii") as stream:
                stream.write("step\n")
            if next(calls) == fail_at:
                raise RuntimeError("out of luck")
            time.sleep(seconds)

        if hasattr(transformer, "test_hook"):  # of an earlier prompt
            transformer.test_hook.remove()
        transformer.test_hook = transformer.register_forward_pre_hook(before)
        return io.NodeOutput(pipeline)


class TestAutoencoder(io.ComfyNode):
    """Writes a small random video autoencoder with HunyuanVideo's 16 latent channels, which VAELoader takes."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="Test_Autoencoder", category="test", inputs=[io.String.Input("file")], outputs=[], is_output_node=True
        )

    @classmethod
    def execute(cls, file: str) -> io.NodeOutput:
        import comfy.utils
        import folder_paths
        from comfy.ldm.wan.vae import WanVAE

        torch.manual_seed(0)
        model = WanVAE(dim=8, z_dim=16, temperal_downsample=[False, True, True])
        for name, weight in model.named_parameters():  # ComfyUI leaves them uninitialised
            if name.endswith("gamma"):
                weight.fill_(1.0)
            else:
                weight.normal_(std=weight[0].numel() ** -0.5 if weight.ndim > 1 else 0.0)
        path = f"{folder_paths.get_folder_paths('vae')[0]}/{file}"
        comfy.utils.save_torch_file({key: value.clone() for key, value in model.state_dict().items()}, path)
        return io.NodeOutput(ui={"text": (path,)})


class TestList(io.ComfyNode):
    """Several batches as a list."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="Test_List",
            category="test",
            inputs=[io.Image.Input(name, optional=True) for name in "abc"],
            outputs=[io.Image.Output(is_output_list=True)],
        )

    @classmethod
    def execute(
        cls, a: torch.Tensor | None = None, b: torch.Tensor | None = None, c: torch.Tensor | None = None
    ) -> io.NodeOutput:
        return io.NodeOutput([batch for batch in (a, b, c) if batch is not None])


class TestRate(io.ComfyNode):
    """A VIDEO that says any rate, such as 0."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="Test_Rate",
            category="test",
            inputs=[io.Image.Input("images"), io.Int.Input("fps", default=0)],
            outputs=[io.Video.Output()],
        )

    @classmethod
    def execute(cls, images: torch.Tensor, fps: int) -> io.NodeOutput:
        parts = Types.VideoComponents(images=images, frame_rate=Fraction(fps), audio=None)
        return io.NodeOutput(InputImpl.VideoFromComponents(parts))


class TestNodes(ComfyExtension):
    async def get_node_list(self) -> list[type[io.ComfyNode]]:
        return [
            TestFrames, TestConditioning, TestLook, TestSize, TestMark, TestMarks, TestSlow, TestSlowPipeline, TestList,
            TestAutoencoder, TestRate,
        ]  # fmt: skip


async def comfy_entrypoint() -> TestNodes:
    return TestNodes()
