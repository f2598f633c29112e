"""Tests of what an estimate stands on."""
