"""Integrations against the real packages, or their conventions."""
