"""The report of an estimate: its data, and the page that shows them."""

from labelnoise.report.data import Report, Truth
from labelnoise.report.gather import report_of

__all__ = ["Report", "Truth", "report_of"]
