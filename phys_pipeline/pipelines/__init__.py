"""Generation: one video, a baseline and an adapter video from the same noise, or the best of several seeds."""

from phys_pipeline.pipelines.ab import Pair, generate, generate_pair
from phys_pipeline.pipelines.best import Best, generate_best

__all__ = ["Best", "Pair", "generate", "generate_best", "generate_pair"]
