"""Prompts for the evaluation: a shipped set, labels by rules or a language model, split files, agreement between labellers."""

from phys_pipeline.evaluation.prompts.label import Label
from phys_pipeline.evaluation.prompts.prompt_set import Prompt, PromptSet, load_prompts
from phys_pipeline.evaluation.prompts.rules import label_by_rules

__all__ = ["Label", "Prompt", "PromptSet", "label_by_rules", "load_prompts"]
