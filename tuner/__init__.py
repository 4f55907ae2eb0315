"""Finds the settings under which a jitted JAX step runs fastest with unchanged results, and proves it.

>>> import tuner
>>> outcome = tuner.tune(tuner.RunOptions(workload=Path("workload.py")))  # doctest: +SKIP

Importing this package imports neither jax, optuna, pandas nor scipy; the names below are loaded when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.errors import TunerError
    from tuner.pipeline.options import RunOptions
    from tuner.pipeline.run import Outcome, tune

__all__ = ["Outcome", "RunOptions", "TunerError", "__version__", "tune"]

__version__ = "0.1.0"

_HOMES = {
    "Outcome": "tuner.pipeline.run",
    "RunOptions": "tuner.pipeline.options",
    "TunerError": "tuner.errors",
    "tune": "tuner.pipeline.run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
