"""Training: the loop, methods, recipes, classifiers."""
