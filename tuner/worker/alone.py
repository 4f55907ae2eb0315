"""A few steps of a workload without a parent: what a foreign profiler is started around."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from tuner.protocol.failure import Failure
from tuner.protocol.messages import Compile, Load, Variant
from tuner.worker.failures import Refused
from tuner.worker.load import from_build

__all__ = ["alone"]

_ID = "control"
_STEPS = 10


def alone(argv: Sequence[str]) -> None:
    """Build the workload, compile its steps and run each a few times. `argv`: what follows `ALONE`.

    Ends the process with a message where that can't be done.
    """
    workload, how, *own = argv
    try:
        session, _ = from_build(Load(workload=workload, argv=tuple(own), **json.loads(how)))
        from tuner.worker.compile import compile_variants  # imports jax
        from tuner.worker.wait import wait

        made = compile_variants(session, Compile(variants=(Variant(id=_ID),))).results[0]
        if isinstance(made, Failure):
            sys.exit(f"the step can't be compiled: {made.message}")
        candidate = session.candidate(_ID)
        with candidate.configured():
            wait(session.state.first(candidate.call))
            wait(session.state.advance(candidate.call, _STEPS))
    except Refused as error:
        sys.exit(str(error))
