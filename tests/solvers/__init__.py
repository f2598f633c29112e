"""Of the solvers."""
