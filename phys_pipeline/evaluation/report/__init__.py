"""Reports of an evaluation: `report.json`, from which the tables in CSV, Markdown, LaTeX and HTML are made."""

from phys_pipeline.evaluation.report.build import build_report, trace
from phys_pipeline.evaluation.report.columns import Column
from phys_pipeline.evaluation.report.run import describe_run
from phys_pipeline.evaluation.report.tables import check_table
from phys_pipeline.evaluation.report.write import write_report

__all__ = ["Column", "build_report", "check_table", "describe_run", "trace", "write_report"]
