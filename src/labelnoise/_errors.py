"""What the user is told when something is wrong."""


class LabelNoiseError(ValueError):
    """Input or settings that cannot be worked with.

    The message states the rule first, then the value that broke it, then what to do.
    """


class LabelNoiseTypeError(LabelNoiseError, TypeError):
    """The same, where scikit-learn's estimators raise a TypeError."""


class LabelNoiseWarning(UserWarning):
    """An estimate was made, but the reader should know something about it."""
