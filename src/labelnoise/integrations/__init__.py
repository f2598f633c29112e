"""Other projects' data in, and results out in the form that their users know.

Each module is imported by its own name and needs its package only where it says so.
"""
