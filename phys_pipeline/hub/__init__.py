"""The Hugging Face Hub: calls with a deadline, in a process of their own, and errors of one line that say what to do."""

from phys_pipeline.hub.names import HubSource, check_file_name, is_hub_source, parse_source
from phys_pipeline.hub.worker import Hub, transfer_seconds

__all__ = ["Hub", "HubSource", "check_file_name", "is_hub_source", "parse_source", "transfer_seconds"]
