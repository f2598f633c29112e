"""Pictures of an estimate, as pages that need nothing but a browser."""

from labelnoise.report.heatmap import Comparison, heatmap_page

__all__ = ["Comparison", "heatmap_page"]
