"""How much is tried, and what holds whatever is tried.

About 500 inputs by default, always the same ones; LABELNOISE_TRIALS times as many in the long run.
"""

import os
import random
import signal
import sys
import threading
import warnings
from contextlib import contextmanager, suppress

import numpy as np
import pandas as pd
import scipy.sparse as sp
from hypothesis import HealthCheck, Phase, settings
from threadpoolctl import threadpool_info

from labelnoise import LabelNoiseError, LabelNoiseWarning

FACTOR = int(os.environ.get("LABELNOISE_TRIALS", "1"))


def trials(n):
    """So many generated inputs, times the factor: always the same ones by default."""
    return settings(
        max_examples=n * FACTOR,
        derandomize=FACTOR == 1,
        deadline=None,
        database=None,
        print_blob=True,
        phases=[Phase.generate],  # to make a failing input smaller takes many fits
        suppress_health_check=list(HealthCheck),
    )


@contextmanager
def nothing_else_changes(*inputs):
    """Inputs and the state of the process are the same afterwards."""
    before = [content(value) for value in inputs], process_state()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LabelNoiseWarning)
        yield
    after = [content(value) for value in inputs], process_state()
    assert repr(after[0]) == repr(before[0])
    for name, value in before[1].items():
        assert after[1][name] == value, name


def result(call, *also):
    """What a call gives; None where it was refused in one sentence, or by an error in `also`."""
    with suppress(LabelNoiseError, *also):
        return call()


def process_state():
    """What a library must leave as it was."""
    torch = sys.modules.get("torch")
    threads = {f"threads of {lib['filepath']}": lib["num_threads"] for lib in threadpool_info()}
    # Packages that are imported meanwhile may add variables, and change none.
    variables = {f"${name}": value for name, value in os.environ.items()}
    return {
        **threads,
        **variables,
        "threads": [t.name for t in threading.enumerate() if not t.daemon],
        "random": random.getstate(),
        "NumPy's random": str(np.random.get_state()),  # noqa: NPY002
        "floating-point errors": np.geterr(),
        "signals": [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)],
        "folder": os.getcwd(),
        "umask": _umask(),
        **({"torch's random": torch.get_rng_state().tolist()} if torch else {}),
    }


def _umask():
    os.umask(mask := os.umask(0))
    return mask


def content(value):
    """All that a value holds, to be compared with itself later."""
    if isinstance(value, dict):
        return {name: content(each) for name, each in value.items()}
    if sp.issparse(value):
        return [content(part) for part in (value.data, value.indices, value.indptr)]
    if isinstance(value, np.ma.MaskedArray):
        return value.tolist()
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return [repr(each) for each in value.ravel().tolist()]
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, pd.DataFrame | pd.Series):
        return repr(value.to_dict())
    return repr(value)
