"""Finds the settings under which a jitted JAX step runs fastest with unchanged results, and proves it.

>>> import tuner
>>> result = tuner.tune("workload.py", budget="10m")  # doctest: +SKIP
>>> result.verdict, result.settings  # doctest: +SKIP

Importing this package imports neither jax, optuna, pandas nor scipy; the names below are loaded when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.api import RunResult, load_run, tune
    from tuner.errors import TunerError

__all__ = ["RunResult", "TunerError", "__version__", "load_run", "tune"]

__version__ = "0.1.0"

_HOMES = {
    "RunResult": "tuner.api",
    "TunerError": "tuner.errors",
    "load_run": "tuner.api",
    "tune": "tuner.api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
