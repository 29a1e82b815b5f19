"""Evaluation of generated videos: metrics with honest statuses, guards against motion that was merely removed, reports."""

from phys_pipeline.evaluation.metric import Availability, MetricInfo, MetricResult, Settings
from phys_pipeline.evaluation.sample import VideoSample

__all__ = ["Availability", "MetricInfo", "MetricResult", "Settings", "VideoSample"]
