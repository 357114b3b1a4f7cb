"""One static page out of a fitted model and data to show it on."""

from ccr.show.report.classes import Measured
from ccr.show.report.report import report_page

__all__ = ["Measured", "report_page"]
