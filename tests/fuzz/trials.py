"""How much is tried: a quick share by default, LABELNOISE_TRIALS times that in the long run."""

import os

from hypothesis import HealthCheck, settings

FACTOR = int(os.environ.get("LABELNOISE_TRIALS", "1"))


def trials(n):
    """So many generated inputs, times the factor: always the same ones in the quick share."""
    return settings(
        max_examples=n * FACTOR,
        derandomize=FACTOR == 1,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
