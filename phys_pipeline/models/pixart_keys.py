"""Names that checkpoints of PixArt's descendants share (Open-Sora 1.2, MVDiT), as rules to those of our models."""

from __future__ import annotations

from phys_pipeline.models.key_map import Rule

OUTER_RULES = (  # around the blocks
    Rule("x_embedder.proj.{p}", "patch_embed.proj.{p}"),
    Rule("t_embedder.mlp.0.{p}", "time_embed.linear_1.{p}"),
    Rule("t_embedder.mlp.2.{p}", "time_embed.linear_2.{p}"),
    Rule("y_embedder.y_embedding", "null_caption"),
    Rule("y_embedder.y_proj.fc1.{p}", "caption_projection.linear_1.{p}"),
    Rule("y_embedder.y_proj.fc2.{p}", "caption_projection.linear_2.{p}"),
    Rule("final_layer.scale_shift_table", "scale_shift_table"),
    Rule("final_layer.linear.{p}", "proj_out.{p}"),
)


def self_attention_rules(source: str, target: str) -> tuple[Rule, ...]:
    """Queries, keys and values are one layer there, three here."""
    return (
        Rule(f"{source}.qkv.{{p}}", tuple(f"{target}.{name}.{{p}}" for name in ("to_q", "to_k", "to_v"))),
        Rule(f"{source}.proj.{{p}}", f"{target}.to_out.0.{{p}}"),
    )


def cross_attention_rules(source: str, target: str) -> tuple[Rule, ...]:
    """Keys and values are one layer there."""
    return (
        Rule(f"{source}.q_linear.{{p}}", f"{target}.to_q.{{p}}"),
        Rule(f"{source}.kv_linear.{{p}}", (f"{target}.to_k.{{p}}", f"{target}.to_v.{{p}}")),
        Rule(f"{source}.proj.{{p}}", f"{target}.to_out.0.{{p}}"),
    )


def feed_forward_rules(source: str, target: str) -> tuple[Rule, ...]:
    """Two linear layers."""
    return (Rule(f"{source}.fc1.{{p}}", f"{target}.net.0.proj.{{p}}"), Rule(f"{source}.fc2.{{p}}", f"{target}.net.2.{{p}}"))
