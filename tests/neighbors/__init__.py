"""Neighbours: exact, approximate, on a GPU, and given."""
