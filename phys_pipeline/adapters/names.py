"""HunyuanVideo's and Wan's linear layers under the names that other programs give them.

diffusers keeps query, key, value and the single blocks' feed-forward input as layers of their own; Tencent's release fuses them
into one layer whose output rows lie in that order, and ComfyUI spells Tencent's names a little differently. Each layer of the
original is written down once, below; ``N`` stands for a block's number. The facts were measured with ComfyUI 0.30.0 and
diffusers 0.42.1: outputs of the renamed model are equal, and ComfyUI's loader takes Tencent's names of block layers, no others.
Wan's release fuses nothing, and ComfyUI spells its names as it does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class OriginalLayer:
    """A linear layer of the original model.

    ``parts`` are the diffusers layers whose output rows it holds, in order; ``names`` its spellings, the model's authors' first;
    ``swapped``: the halves of its output rows (shift, scale) are the other way round in diffusers.
    """

    parts: tuple[str, ...]
    names: tuple[str, ...]
    swapped: bool = False

    @property
    def in_blocks(self) -> bool:
        """Whether ComfyUI's loader knows it by its authors' name."""
        return self.names[0].startswith(("double_blocks.", "single_blocks.", "blocks."))

    @property
    def comfyui(self) -> str:
        """ComfyUI's own name of the layer, without the prefix ``diffusion_model.``."""
        embedder = [name for name in self.names if name.endswith(("in_layer", "out_layer"))]
        return (embedder or self.names[1:2] or self.names)[0]


def _hunyuan_video() -> tuple[OriginalLayer, ...]:
    double, single = "transformer_blocks.N.", "single_transformer_blocks.N."
    refiner, original_refiner = "context_embedder.token_refiner.refiner_blocks.N.", "txt_in.individual_token_refiner.blocks.N."
    layers = []
    for side, attention, out, feed_forward, norm in (
        ("img", ("to_q", "to_k", "to_v"), "to_out.0", "ff", "norm1"),
        ("txt", ("add_q_proj", "add_k_proj", "add_v_proj"), "to_add_out", "ff_context", "norm1_context"),
    ):
        own = f"double_blocks.N.{side}"
        layers += [
            OriginalLayer(tuple(f"{double}attn.{name}" for name in attention), (f"{own}_attn_qkv", f"{own}_attn.qkv")),
            OriginalLayer((f"{double}attn.{out}",), (f"{own}_attn_proj", f"{own}_attn.proj")),
            OriginalLayer((f"{double}{feed_forward}.net.0.proj",), (f"{own}_mlp.fc1", f"{own}_mlp.0", f"{own}_mlp.fc0")),
            OriginalLayer((f"{double}{feed_forward}.net.2",), (f"{own}_mlp.fc2", f"{own}_mlp.2")),
            OriginalLayer((f"{double}{norm}.linear",), (f"{own}_mod.linear", f"{own}_mod.lin")),
        ]
    query_key_value = ("attn.to_q", "attn.to_k", "attn.to_v")
    layers += [
        OriginalLayer(tuple(single + name for name in (*query_key_value, "proj_mlp")), ("single_blocks.N.linear1",)),
        OriginalLayer((f"{single}proj_out",), ("single_blocks.N.linear2",)),
        OriginalLayer((f"{single}norm.linear",), ("single_blocks.N.modulation.linear", "single_blocks.N.modulation.lin")),
        OriginalLayer(
            tuple(refiner + name for name in query_key_value),
            (f"{original_refiner}self_attn_qkv", f"{original_refiner}self_attn.qkv"),
        ),
        OriginalLayer((f"{refiner}attn.to_out.0",), (f"{original_refiner}self_attn_proj", f"{original_refiner}self_attn.proj")),
        OriginalLayer(
            (f"{refiner}ff.net.0.proj",),
            (f"{original_refiner}mlp.fc1", f"{original_refiner}mlp.0", f"{original_refiner}mlp.fc0"),
        ),
        OriginalLayer((f"{refiner}ff.net.2",), (f"{original_refiner}mlp.fc2", f"{original_refiner}mlp.2")),
        OriginalLayer((f"{refiner}norm_out.linear",), (f"{original_refiner}adaLN_modulation.1",)),
        OriginalLayer(("context_embedder.proj_in",), ("txt_in.input_embedder",)),
        OriginalLayer(("norm_out.linear",), ("final_layer.adaLN_modulation.1",), swapped=True),
        OriginalLayer(("proj_out",), ("final_layer.linear",)),
    ]
    for prefix, embedder, original, spellings in (
        ("", "timestep_embedder", "time_in", ("mlp.0", "mlp.2")),
        ("", "guidance_embedder", "guidance_in", ("mlp.0", "mlp.2")),
        ("", "text_embedder", "vector_in", ()),
        ("context_embedder.", "timestep_embedder", "txt_in.t_embedder", ("mlp.0", "mlp.2")),
        ("context_embedder.", "text_embedder", "txt_in.c_embedder", ("linear_1", "linear_2")),
    ):
        for i, comfyui in enumerate(("in_layer", "out_layer")):
            linear = f"linear_{i + 1}"
            names = dict.fromkeys([*spellings[i : i + 1], comfyui, linear])
            module = f"{prefix}time_text_embed.{embedder}.{linear}"
            layers.append(OriginalLayer((module,), tuple(f"{original}.{name}" for name in names)))
    return tuple(layers)


def _wan() -> tuple[OriginalLayer, ...]:
    """Those of image-to-video too, so that its adapters are told to be for another model and not applied in part."""
    query_key_value_out = (("q", "to_q"), ("k", "to_k"), ("v", "to_v"), ("o", "to_out.0"))
    picture = (("k_img", "add_k_proj"), ("v_img", "add_v_proj"))
    pairs = [(f"self_attn.{name}", f"attn1.{part}") for name, part in query_key_value_out]
    pairs += [(f"cross_attn.{name}", f"attn2.{part}") for name, part in (*query_key_value_out, *picture)]
    pairs += [("ffn.0", "ffn.net.0.proj"), ("ffn.2", "ffn.net.2")]
    layers = [OriginalLayer((f"blocks.N.{part}",), (f"blocks.N.{name}",)) for name, part in pairs]
    for original, part in (
        ("text_embedding.0", "text_embedder.linear_1"),
        ("text_embedding.2", "text_embedder.linear_2"),
        ("time_embedding.0", "time_embedder.linear_1"),
        ("time_embedding.2", "time_embedder.linear_2"),
        ("time_projection.1", "time_proj"),
        ("img_emb.proj.1", "image_embedder.ff.net.0.proj"),
        ("img_emb.proj.3", "image_embedder.ff.net.2"),
    ):
        layers.append(OriginalLayer((f"condition_embedder.{part}",), (original,)))
    return (*layers, OriginalLayer(("proj_out",), ("head.head",)))


HUNYUAN_VIDEO = _hunyuan_video()
WAN = _wan()
_LAYERS = (*WAN, *HUNYUAN_VIDEO)  # both call their last layer proj_out: as a diffusers name it is HunyuanVideo's
_BLOCK = re.compile(r"(blocks[._])(0|[1-9]\d{0,3})([._])")


@dataclass(frozen=True)
class Target:
    """The diffusers layers that a name in a file stands for; more than one when it is a fused layer."""

    modules: tuple[str, ...]
    swapped: bool = False


def _spellings() -> dict[str, Target]:
    found: dict[str, Target] = {}
    for layer in _LAYERS:
        for part in layer.parts:
            found[part] = Target((part,))
        for name in layer.names:
            found[name] = Target(layer.parts, layer.swapped)
            if len(layer.parts) > 1:  # OneTrainer numbers the parts of a fused layer
                found |= {f"{name}.{i}": Target((part,)) for i, part in enumerate(layer.parts)}
    return found | {name.replace(".", "_"): target for name, target in found.items()}  # as kohya spells them


_SPELLINGS = _spellings()
_PART = {part: (layer, i) for layer in _LAYERS for i, part in enumerate(layer.parts)}


def resolve(name: str) -> Target | None:
    """The diffusers layers that a layer's name, in any spelling and without prefix, stands for; None if it is not known."""
    match = _BLOCK.search(name)
    number = match[2] if match else "N"
    target = _SPELLINGS.get(_BLOCK.sub(r"\1N\3", name, count=1) if match else name)
    if target is None or ("N" in target.modules[0].split(".")) != bool(match):
        return None
    return Target(tuple(_numbered(module, number) for module in target.modules), target.swapped)


def original_layer(module: str) -> tuple[OriginalLayer, str, int] | None:
    """The original layer that holds a diffusers layer, its authors' name of it, and which part of it that is; None: not known."""
    match = _BLOCK.search(module)
    found = _PART.get(_BLOCK.sub(r"\1N\3", module, count=1) if match else module)
    if found is None:
        return None
    layer, part = found
    number = match[2] if match else "N"
    numbered = OriginalLayer(tuple(_numbered(p, number) for p in layer.parts), layer.names, layer.swapped)
    return numbered, _numbered(layer.names[0], number), part


def comfyui_layer(module: str) -> str | None:
    """ComfyUI's own name of the original layer that holds a diffusers layer; None: not known."""
    found = original_layer(module)
    if found is None:
        return None
    match = _BLOCK.search(module)
    return _numbered(found[0].comfyui, match[2] if match else "N")


def _numbered(name: str, number: str) -> str:
    return name.replace(".N.", f".{number}.")
