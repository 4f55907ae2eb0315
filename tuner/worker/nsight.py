"""Marks a stretch of work for NVIDIA's profilers, which capture from cuProfilerStart to cuProfilerStop."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

from tuner.protocol.failure import FailureClass
from tuner.worker.failures import Refused

__all__ = ["marked"]

_DRIVER = "libcuda.so.1"


@contextmanager
def marked() -> Iterator[None]:
    """What happens inside is captured. Raises Refused(UNSUPPORTED) where there is no CUDA driver."""
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError as error:
        raise Refused(
            FailureClass.UNSUPPORTED, f"Nsight Systems sees GPUs alone, and there is none: {error}"
        ) from error
    driver.cuProfilerStart()
    try:
        yield
    finally:
        driver.cuProfilerStop()
