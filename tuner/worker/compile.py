"""The compile request: variants of the step, lowered one by one and compiled several at once."""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
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
class _Plan:
    """A variant's settings in jax's types. `key` tells one set of settings from another."""

    options: Mapping[str, Any]
    jax_config: Mapping[str, Any]

    @property
    def config_key(self) -> tuple[str, ...]:
        return _spelled(self.jax_config)

    @property
    def key(self) -> tuple[str, ...]:
        return (*_spelled(self.options), "|", *self.config_key)


@dataclass(frozen=True)
class _Lowered:
    plan: _Plan
    jitted: Any
    lowered: jax.stages.Lowered
    seconds: float


@dataclass(frozen=True)
class _Made:
    """A candidate with its persistent-cache events."""

    candidate: Candidate
    requests: int
    hits: int


def compile_variants(session: WorkerSession, request: Compile) -> CompileReply:
    """Compile each variant under its id; one that fails becomes a Failure in its place and disturbs no other.

    Lowering is serial (it shares one trace), compiling uses `threads`. A variant's `jitted` and its `lower().compile()`
    share one executable, so that each is compiled once and can be both inspected and called. So do variants with equal
    settings: for the second of them nothing is left to do.
    """
    release(session, [variant.id for variant in request.variants])
    plans: list[_Plan | Failure] = [_guarded(_plan, variant) for variant in request.variants]
    made: dict[tuple[str, ...], _Made | Failure] = {}
    todo = {plan.key: plan for plan in plans if isinstance(plan, _Plan) and session.twin(plan.key) is None}
    while todo and not session.settled:
        key = next(iter(todo))
        made[key] = _guarded(_first, session, todo.pop(key))
    made |= dict(zip(todo, _batch(session, [*todo.values()], request.threads), strict=True))
    results: list[Compiled | Failure] = []
    for variant, plan in zip(request.variants, plans, strict=True):
        outcome = plan if isinstance(plan, Failure) else made.get(plan.key)
        if isinstance(outcome, Failure):
            results.append(outcome)
            continue
        twin = session.twin(plan.key) if isinstance(plan, _Plan) else None
        if twin is not None:
            session.candidates[variant.id] = twin
            results.append(replace(twin.result, id=variant.id, lower_s=0.0, compile_s=0.0, cache_hit=None))
        elif outcome is not None:
            session.candidates[variant.id] = outcome.candidate
            results.append(replace(outcome.candidate.result, id=variant.id))
    counted = [outcome for outcome in made.values() if isinstance(outcome, _Made)]
    return CompileReply(
        results=tuple(results),
        cache_requests=sum(outcome.requests for outcome in counted),
        cache_hits=sum(outcome.hits for outcome in counted),
    )


def build_candidate(session: WorkerSession, variant: Variant) -> Candidate:
    """One variant for a passing purpose, under no id; the caller lets go of it. Raises what the compiler raises."""
    plan = _plan(variant)
    return session.twin(plan.key) or _compile(session, _lower(session, plan)).candidate


def _guarded(function: Any, *args: Any) -> Any:
    try:
        return function(*args)
    except Exception as error:
        return failure_of(error, "compile")


def _plan(variant: Variant) -> _Plan:
    options: dict[str, Any] = dict(variant.compiler_options)
    if variant.profile:
        options["fdo_profile"] = base64.b64decode(variant.profile)
    return _Plan(options, config_values(variant.jax_config))


def _spelled(values: Mapping[str, Any]) -> tuple[str, ...]:
    """`values` as texts: True and 1 are equal in Python, and two settings to the compiler."""
    return tuple(f"{name}={value!r}" for name, value in values.items())


def _first(session: WorkerSession, plan: _Plan) -> _Made:
    """The first candidate of a session also takes one step, to see whether the second call would compile again."""
    item = _lower(session, plan)
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
    return _compile(session, _lower(session, plan))


def _batch(session: WorkerSession, plans: Sequence[_Plan], threads: int) -> list[_Made | Failure]:
    lowered = [_guarded(_lower, session, plan) for plan in plans]
    if threads <= 1:
        return [_guarded(_compile, session, item) if isinstance(item, _Lowered) else item for item in lowered]
    with ThreadPoolExecutor(threads, thread_name_prefix="tuner-compile") as pool:
        compiling = [pool.submit(_guarded, _compile, session, i) if isinstance(i, _Lowered) else i for i in lowered]
    return [item.result() if isinstance(item, Future) else item for item in compiling]


def _lower(session: WorkerSession, plan: _Plan) -> _Lowered:
    start = time.perf_counter()
    base = session.bases.setdefault(plan.config_key, session.step.base())
    jitted = session.step.jit(base, plan.options)
    args, kwargs = session.state.call()
    with configured(plan.jax_config):
        lowered = session.step.bind(jitted.lower)(*args, **kwargs)
    return _Lowered(plan, jitted, lowered, time.perf_counter() - start)


def _compile(session: WorkerSession, item: _Lowered) -> _Made:
    requests, hits = session.events.here()
    start = time.perf_counter()
    with configured(item.plan.jax_config):
        compiled = item.lowered.compile()
    seconds = time.perf_counter() - start
    now_requests, now_hits = session.events.here()
    executable = compiled.runtime_executable()
    hlo = canonical_hlo(executable)
    cached = now_hits > hits
    code, covers = code_of(executable, session.platform, hlo=hlo, cached=cached)
    result = Compiled(
        id="",
        program=program_of(item.lowered, session.state.placement()),
        code=code,
        code_covers=covers,
        lower_s=item.seconds,
        compile_s=seconds,
        peak_bytes=_peak_bytes(compiled),
        collectives=collectives_in("\n".join(hlo)),
        cache_hit=cached if now_requests > requests else None,
    )
    candidate = Candidate(
        item.plan.key, item.jitted, compiled, session.step.bind(item.jitted), item.plan.jax_config, result
    )
    return _Made(candidate, now_requests - requests, now_hits - hits)


def _peak_bytes(compiled: jax.stages.Compiled) -> int | None:
    sizes = compiled.memory_analysis()
    if sizes is None:
        return None
    return int(
        sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes - sizes.alias_size_in_bytes
    )
