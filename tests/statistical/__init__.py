"""Long runs: `make test-slow`. Their last results are in RESULTS.md, with their date."""
