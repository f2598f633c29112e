"""Files in every format, what goes wrong with them, and where results go."""
