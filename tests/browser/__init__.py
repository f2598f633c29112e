"""The report in a real browser: `make test-browser`."""
