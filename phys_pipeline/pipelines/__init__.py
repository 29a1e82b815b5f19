"""Generation: one video, or a baseline and an adapter video from the same noise."""

from phys_pipeline.pipelines.ab import Pair, generate, generate_pair

__all__ = ["Pair", "generate", "generate_pair"]
