"""Kills, full disks, folders that cannot be written."""
