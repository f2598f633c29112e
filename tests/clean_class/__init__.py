"""Tests of the one model of the clean class."""
