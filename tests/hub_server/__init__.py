"""A Hub on the loopback address, for tests: the unmodified huggingface_hub client and `hf` work against it."""

from hub_server.faults import Fault, Request
from hub_server.server import HubServer
from hub_server.store import Account, Store

__all__ = ["Account", "Fault", "HubServer", "Request", "Store"]
