"""Of verified labels."""
