"""Nodes for tests: frames of any kind, conditioning without a text encoder, and a look at what arrives."""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any

import torch
from comfy_api.latest import ComfyExtension, io

_executed: list[str] = []  # markers of TestMark, in the order in which they ran


class TestFrames(io.ComfyNode):
    """A bright square that moves over a textured ground, as a batch of any size and kind."""

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
        generator = torch.Generator().manual_seed(0)
        if "constant" in kind:  # takes no memory
            return io.NodeOutput(torch.rand(1, height, width, channels, generator=generator).expand(frames, -1, -1, -1))
        ground = 0.2 * torch.rand(height, width, channels, generator=generator)
        images = ground.repeat(frames, 1, 1, 1)
        for number in range(frames):
            noise = torch.rand(height, width, channels, generator=generator)
            left = int(number * speed) % max(1, width - 12)
            images[number, height // 3 : height // 3 + 12, left : left + 12] = 0.9
            if "noise" in kind:
                images[number] = noise
        if "nan" in kind:
            images[frames // 2, 3, 3] = float("nan")
        if "half" in kind:
            images = images.half()
        if "strided" in kind:
            images = images.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3)
        return io.NodeOutput(images)


class TestConditioning(io.ComfyNode):
    """What text encoders would give, random."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="Test_Conditioning", category="test", inputs=[io.Int.Input("seed", default=0)], outputs=[io.Conditioning.Output()]
        )

    @classmethod
    def execute(cls, seed: int) -> io.NodeOutput:
        generator = torch.Generator().manual_seed(seed)
        text, pooled = torch.randn(1, 7, 32, generator=generator), torch.randn(1, 768, generator=generator)
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


class TestList(io.ComfyNode):
    """Several batches as a list."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="Test_List",
            category="test",
            inputs=[io.Image.Input("a"), io.Image.Input("b"), io.Image.Input("c", optional=True)],
            outputs=[io.Image.Output(is_output_list=True)],
        )

    @classmethod
    def execute(cls, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None = None) -> io.NodeOutput:
        return io.NodeOutput([batch for batch in (a, b, c) if batch is not None])


class TestNodes(ComfyExtension):
    async def get_node_list(self) -> list[type[io.ComfyNode]]:
        return [TestFrames, TestConditioning, TestLook, TestMark, TestMarks, TestSlow, TestList]


async def comfy_entrypoint() -> TestNodes:
    return TestNodes()
