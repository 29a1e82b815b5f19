"""What all tabs of one running app share."""

from __future__ import annotations

from dataclasses import dataclass

from phys_pipeline.web.engine.jobs import Jobs, Progress
from phys_pipeline.web.engine.models import Models
from phys_pipeline.web.engine.runs import Runs
from phys_pipeline.web.engine.settings import AppSettings

_STATUS = (
    '<div class="status" role="status"><span>{text}</span>'
    '<progress max="1" {value} aria-label="Progress" style="width:100%{hidden}"></progress></div>'
)


@dataclass(frozen=True)
class Context:
    """Settings, the model in memory, results and running jobs."""

    settings: AppSettings
    models: Models
    runs: Runs
    jobs: Jobs

    @classmethod
    def of(cls, settings: AppSettings) -> Context:
        """A new app's."""
        return cls(settings, Models(settings), Runs(settings.root / "runs"), Jobs())


def status_html(now: Progress | str, running: bool = True) -> str:
    """The line that says where a job is; of our own words alone, or escaped before."""
    from html import escape

    share = now.share if isinstance(now, Progress) and now.total else None
    value = f'value="{share:.3f}"' if share is not None else ""
    return _STATUS.format(text=escape(str(now)), value=value, hidden="" if running else ";display:none")
