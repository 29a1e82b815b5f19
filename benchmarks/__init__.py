"""Measurements that the documentation quotes; each script is run on its own, see its first lines."""
