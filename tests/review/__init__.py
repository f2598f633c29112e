"""The review page: its store, its server and its files."""
