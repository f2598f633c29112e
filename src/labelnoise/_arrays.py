"""The same arithmetic by NumPy on the host and by PyTorch on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from labelnoise._blocks import one_blas_thread, thread_count


@dataclass(frozen=True)
class Arrays:
    """Where arrays are, and how they get there."""

    xp: Any = np
    """NumPy or PyTorch: of both, only what they spell alike is used."""
    device: Any = None
    """That of PyTorch."""
    larger: int = 1
    """Times as large are blocks as the cache of a processor likes them."""
    free: float = np.inf
    """Bytes that may be used."""

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"xp": self.xp.__name__}  # a module cannot be pickled

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state | {"xp": import_module(state["xp"])})

    def put(self, array: Any, dtype: Any = None) -> Any:
        """An array of the host, of this type, or one of here: contiguous and here."""
        if self.device is None:
            return np.ascontiguousarray(array, dtype)
        if isinstance(array, np.ndarray):  # PyTorch knows none that cannot be written to
            array = self.xp.from_numpy(np.require(array, dtype, ["C", "W"]))
        return array.to(self.device).contiguous()

    def get(self, array: Any) -> Any:
        """An array of here, on the host."""
        return array if self.device is None else array.cpu().numpy()

    def empty(self, shape: tuple[int, ...]) -> Any:
        """An array of float32."""
        options = {} if self.device is None else {"device": self.device}
        return self.xp.empty(shape, dtype=self.xp.float32, **options)

    @contextmanager
    def in_full(self) -> Iterator[None]:
        """Have products of float32 done in float32, whatever PyTorch was told to do."""
        if self.device is None:
            yield
            return
        precision = self.xp.get_float32_matmul_precision()
        self.xp.set_float32_matmul_precision("highest")
        try:
            with self.xp.no_grad(), self.xp.autocast(self.device.type, enabled=False):
                yield
        finally:
            self.xp.set_float32_matmul_precision(precision)

    @contextmanager
    def sharing(self) -> Iterator[Callable[..., Any]]:
        """A `map` whose calls several threads share; a GPU shares each of them by itself."""
        if self.device is not None:
            yield map
            return
        with one_blas_thread(), ThreadPoolExecutor(thread_count()) as pool:
            yield pool.map


HOST = Arrays()
