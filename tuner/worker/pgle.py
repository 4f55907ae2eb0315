"""The pgle request: a profile of instruction times for the compiler, taken as jax's auto-PGLE takes it."""

from __future__ import annotations

import base64
import zlib
from dataclasses import replace

from tuner.protocol.failure import FailureClass
from tuner.protocol.messages import Pgle, PgleReply, Variant
from tuner.protocol.wire import bytes_fields
from tuner.worker import internals
from tuner.worker.compile import build_candidate
from tuner.worker.failures import Refused
from tuner.worker.session import Candidate, WorkerSession
from tuner.worker.wait import wait

__all__ = ["instructions_in", "take_profile"]

_COSTS = 1  # field of ProfiledInstructionsProto: one entry an instruction


def take_profile(session: WorkerSession, request: Pgle) -> PgleReply:
    """Trace `runs` steps one by one and aggregate them. A trace with nothing to aggregate (on a CPU always) gives an
    empty profile. Nothing of it is timed, and the profiled executable is let go.

    Raises Refused(UNSUPPORTED) for a workload of several steps: costs are kept by the instruction's name, which several
    programs share. Raises Refused(PGLE_INACTIVE) where another profiler is attached already: there can only be one."""
    if len(session.parts) > 1:
        raise Refused(FailureClass.UNSUPPORTED, "a PGLE profile holds one program's costs; this workload has several")
    candidate = build_candidate(session, _traceable(request.variant, session.platform))
    try:
        with candidate.configured():
            made = list(candidate.compiled.values())
            hlo = "\n".join(one.as_text() or "" for one in made)
            inner = {start: name for one in made for start, name in internals.wrapped(one.runtime_executable()).items()}
            wait(session.state.first(candidate.call))
            traces = [_trace(session, candidate) for _ in range(request.runs)]
    except BaseException:
        session.state.lose()
        raise
    finally:
        if session.twin(candidate.key) is None:
            candidate.clear()
    full = [trace for trace in traces if trace]
    profile = internals.aggregate_profiles(full, request.percentile) if full else b""
    return PgleReply(
        profile=_text(profile),
        instructions=instructions_in(profile),
        traces=tuple(_text(trace) for trace in traces),
        hlo=_text(zlib.compress(hlo.encode())),
        wrapped=inner,
    )


def instructions_in(profile: bytes) -> int:
    """Number of instructions an aggregated profile has costs for."""
    return sum(number == _COSTS for number, _ in bytes_fields(profile))


def _traceable(variant: Variant, platform: str) -> Variant:
    """`variant` without command buffers: kernels inside a captured graph are not attributed to their instructions."""
    if platform != "gpu":
        return variant
    return replace(variant, compiler_options=variant.compiler_options | {"xla_gpu_enable_command_buffer": ""})


def _trace(session: WorkerSession, candidate: Candidate) -> bytes:
    try:
        return internals.trace_profile(lambda: wait(session.state.advance(candidate.call, 1)))
    except internals.ProfilerBusy as busy:
        why = f"no profiler can be attached to the process, where there can only be one: {busy}"
        raise Refused(FailureClass.PGLE_INACTIVE, why) from busy


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
