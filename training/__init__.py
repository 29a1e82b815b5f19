"""Training scripts and their parts; run from the repository root."""
