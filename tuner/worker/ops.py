"""Which function answers which request, once a workload is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tuner.worker.ceilings import ceilings
from tuner.worker.compile import compile_variants, lower_step
from tuner.worker.numerics import check_numerics
from tuner.worker.pgle import take_profile
from tuner.worker.probe import probe
from tuner.worker.profile import profile
from tuner.worker.release import released
from tuner.worker.session import WorkerSession
from tuner.worker.timing import time_round

__all__ = ["OPERATIONS"]

OPERATIONS: Mapping[str, Callable[[WorkerSession, Any], Any]] = {
    "probe": probe,
    "lower": lower_step,
    "compile": compile_variants,
    "round": time_round,
    "numerics": check_numerics,
    "pgle": take_profile,
    "profile": profile,
    "ceilings": ceilings,
    "release": released,
}
