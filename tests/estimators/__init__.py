"""Of the estimators with a T for each part of the data."""
