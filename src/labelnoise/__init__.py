"""How wrong are your labels? Estimate the noise transition matrix, and undo the noise."""

__version__ = "0.1.0.dev0"
