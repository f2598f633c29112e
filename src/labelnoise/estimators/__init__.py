"""The same steps on parts of the data: neighbourhoods, known groups, annotators."""
