"""Input from strangers: each ends in a result or in the project's own error."""
