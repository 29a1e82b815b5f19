"""Errors whose message is one line for the user: what is wrong, then what to do."""


class PhysPipelineError(Exception):
    """Base of every expected error. The command line prints the message and exits with code 2."""


class MediaError(PhysPipelineError):
    """A video or picture can't be read or written."""


class ConfigError(PhysPipelineError):
    """A configuration value is missing, unknown or out of range."""


class ModelError(PhysPipelineError):
    """A base model can't be found, loaded or run as asked."""


class AdapterError(PhysPipelineError):
    """An adapter file can't be applied, saved or verified."""


class HubError(AdapterError):
    """The Hub can't be read or written as asked. ``kind`` says why, ``wait`` how many seconds the Hub asks to wait."""

    def __init__(self, message: str, kind: str = "other", wait: float | None = None) -> None:
        super().__init__(message)
        self.kind, self.wait = kind, wait


class DataError(PhysPipelineError):
    """A training set has no usable clip, or a clip lacks its caption."""


def first_line(error: BaseException) -> str:
    """The first line with text of somebody else's error, at most 300 characters, or its class: for a one-line message of ours."""
    return next((line for line in str(error).strip().splitlines() if line.strip()), type(error).__name__)[:300]
