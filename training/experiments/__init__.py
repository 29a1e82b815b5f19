"""The experiment: the same adapter trained with different losses, chosen on validation prompts, compared on test prompts once."""
