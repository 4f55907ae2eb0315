"""The compile request: variants of the step, lowered one by one and compiled several at once."""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax

from tuner.protocol.failure import Failure
from tuner.protocol.messages import Compile, Compiled, CompileReply, Variant
from tuner.worker.failures import failure_of
from tuner.worker.fingerprint import code_of, collectives_in, program_of
from tuner.worker.internals import canonical_hlo
from tuner.worker.release import release
from tuner.worker.session import Candidate, WorkerSession, config_values, configured
from tuner.worker.wait import wait

__all__ = ["build_candidate", "compile_variants"]


@dataclass(frozen=True)
class _Lowered:
    """A variant between lowering and compiling."""

    key: tuple[Any, ...]
    jitted: Any
    lowered: jax.stages.Lowered
    jax_config: Mapping[str, Any]
    seconds: float


@dataclass(frozen=True)
class _Made:
    candidate: Candidate
    lowered: _Lowered
    compile_s: float
    requests: int
    hits: int


def compile_variants(session: WorkerSession, request: Compile) -> CompileReply:
    """Compile each variant under its id; one that fails becomes a Failure in its place and disturbs no other.

    Lowering is serial (it shares one trace), compiling uses `threads`. A variant's `jitted` and its `lower().compile()`
    share one executable, so that each is compiled once and can be both inspected and called.
    """
    release(session, [variant.id for variant in request.variants])
    made: list[_Made | Failure] = []
    for variant in request.variants:
        if session.settled:
            break
        made.append(_guarded(_first, session, variant))
    made += _batch(session, request.variants[len(made) :], request.threads)
    results: list[Compiled | Failure] = []
    for variant, outcome in zip(request.variants, made, strict=True):
        if isinstance(outcome, _Made):
            session.candidates[variant.id] = outcome.candidate
            results.append(_guarded(_described, session, variant.id, outcome))
        else:
            results.append(outcome)
    counted = [outcome for outcome in made if isinstance(outcome, _Made)]
    return CompileReply(
        results=tuple(results),
        cache_requests=sum(outcome.requests for outcome in counted),
        cache_hits=sum(outcome.hits for outcome in counted),
    )


def build_candidate(session: WorkerSession, variant: Variant) -> Candidate:
    """One variant compiled for a passing purpose; the caller lets go of it. Raises what the compiler raises."""
    return _compile(session, _lower(session, variant)).candidate


def _guarded(function: Any, *args: Any) -> Any:
    try:
        return function(*args)
    except Exception as error:
        return failure_of(error, "compile")


def _first(session: WorkerSession, variant: Variant) -> _Made:
    """The first candidate of a session also takes one step, to see whether the second call would compile again."""
    item = _lower(session, variant)
    made = _compile(session, item)
    try:
        with made.candidate.configured():
            out = wait(session.state.first(made.candidate.call))
    except BaseException:
        session.state.lose()
        raise
    session.settled = True
    if not session.state.settle(out):
        return made
    item.jitted.clear_cache()
    return _compile(session, _lower(session, variant))


def _batch(session: WorkerSession, variants: Sequence[Variant], threads: int) -> list[_Made | Failure]:
    lowered = []
    fresh: dict[tuple[Any, ...], Any] = {}
    for variant in variants:
        item = _guarded(_lower, session, variant, fresh)
        lowered.append(item)
        if isinstance(item, _Lowered):
            fresh[item.key] = item.jitted
    if threads == 1:
        return [_guarded(_compile, session, item) if isinstance(item, _Lowered) else item for item in lowered]
    with ThreadPoolExecutor(threads, thread_name_prefix="tuner-compile") as pool:
        compiling = [pool.submit(_guarded, _compile, session, i) if isinstance(i, _Lowered) else i for i in lowered]
    return [item.result() if isinstance(item, Future) else item for item in compiling]


def _lower(session: WorkerSession, variant: Variant, fresh: Mapping[tuple[Any, ...], Any] | None = None) -> _Lowered:
    start = time.perf_counter()
    values = config_values(variant.jax_config)
    options: dict[str, Any] = dict(variant.compiler_options)
    if variant.profile:
        options["fdo_profile"] = base64.b64decode(variant.profile)
    key = (*_spelled(options), "|", *_spelled(values))
    base = session.bases.setdefault(_spelled(values), session.step.base())
    # Two jitted functions with equal options share their executable: clearing one would take it from the other.
    known = {candidate.key: candidate.jitted for candidate in session.candidates.values()} | dict(fresh or {})
    jitted = known.get(key) or session.step.jit(base, options)
    args, kwargs = session.state.call()
    with configured(values):
        lowered = session.step.bind(jitted.lower)(*args, **kwargs)
    return _Lowered(key, jitted, lowered, values, time.perf_counter() - start)


def _spelled(values: Mapping[str, Any]) -> tuple[str, ...]:
    """`values` as texts: True and 1 are equal in Python, and two settings to the compiler."""
    return tuple(f"{name}={value!r}" for name, value in values.items())


def _compile(session: WorkerSession, item: _Lowered) -> _Made:
    requests, hits = session.events.here()
    start = time.perf_counter()
    with configured(item.jax_config):
        compiled = item.lowered.compile()
    seconds = time.perf_counter() - start
    now_requests, now_hits = session.events.here()
    candidate = Candidate(item.key, item.jitted, compiled, session.step.bind(item.jitted), item.jax_config)
    return _Made(candidate, item, seconds, now_requests - requests, now_hits - hits)


def _described(session: WorkerSession, handle: str, made: _Made) -> Compiled:
    compiled = made.candidate.compiled
    executable = compiled.runtime_executable()
    hlo = canonical_hlo(executable)
    code, covers = code_of(executable, session.platform, hlo=hlo)
    return Compiled(
        id=handle,
        program=program_of(made.lowered.lowered, session.state.placement()),
        code=code,
        code_covers=covers,
        lower_s=made.lowered.seconds,
        compile_s=made.compile_s,
        peak_bytes=_peak_bytes(compiled),
        collectives=collectives_in("\n".join(hlo)),
        cache_hit=bool(made.hits) if made.requests else None,
    )


def _peak_bytes(compiled: jax.stages.Compiled) -> int | None:
    sizes = compiled.memory_analysis()
    if sizes is None:
        return None
    return int(
        sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes - sizes.alias_size_in_bytes
    )
