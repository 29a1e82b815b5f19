"""The metrics, one file for what shares a computation."""
