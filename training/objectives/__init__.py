"""What a step can minimise, one module each; `training.objective` combines them. Table: docs/training_objectives.md."""
