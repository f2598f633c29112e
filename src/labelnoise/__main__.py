"""`python -m labelnoise` is `labelnoise`."""

from labelnoise.cli import main

main()
