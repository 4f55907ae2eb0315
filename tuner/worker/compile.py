"""The compile request: variants of the step, or steps, lowered one by one and compiled several at once."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax

from tuner.protocol.failure import Failure
from tuner.protocol.messages import Compile, Compiled, CompileReply, Lower, Lowered, Sketch, Variant
from tuner.worker.failures import failure_of
from tuner.worker.fingerprint import code_of, collective_bytes_in, collectives_in, digest, program_of, schedule_of
from tuner.worker.gang import together
from tuner.worker.internals import canonical_hlo, stored_as_guided
from tuner.worker.release import release
from tuner.worker.session import Candidate, WorkerSession, config_values, configured
from tuner.worker.sketch import sketch_of
from tuner.worker.wait import wait

__all__ = ["build_candidate", "compile_variants", "lower_step"]


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
    """Each step's, by its name."""

    plan: _Plan
    jitted: Mapping[str, Any]
    lowered: Mapping[str, jax.stages.Lowered]
    seconds: float


@dataclass(frozen=True)
class _Made:
    """A candidate with its persistent-cache events, and its collectives in their order."""

    candidate: Candidate
    requests: int
    hits: int
    schedule: tuple[str, ...]


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
        modules=session.events.modules(),
    )


def lower_step(session: WorkerSession, _request: Lower) -> Lowered:
    """The program of the step as it is called first. Raises what tracing raises."""
    return Lowered(program=_program(session, _lower(session, _Plan({}, {}))))


def build_candidate(session: WorkerSession, variant: Variant) -> Candidate:
    """One variant for a passing purpose, under no id; the caller lets go of it. Raises what the compiler raises."""
    plan = _plan(variant)
    return session.twin(plan.key) or _alike(session, plan).candidate


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
    made = _alike(session, plan)

    def step() -> bool:
        with made.candidate.configured():
            return session.state.settle(wait(session.state.first(made.candidate.call)))

    try:
        moved, _ = together(session.gang, "compile", step)
    except BaseException:
        session.state.lose()
        raise
    session.settled = True
    if not moved:
        return made
    made.candidate.clear()
    again = _alike(session, plan)
    first = made.candidate.result
    result = replace(again.candidate.result, first_program=first.program, sketch=first.sketch)
    return replace(again, candidate=replace(again.candidate, result=result))


def _batch(session: WorkerSession, plans: Sequence[_Plan], threads: int) -> list[_Made | Failure]:
    if session.gang is not None:
        return [_guarded(_alike, session, plan) for plan in plans]
    lowered = [_guarded(_lower, session, plan) for plan in plans]
    if threads <= 1:
        return [_guarded(_compile, session, item) if isinstance(item, _Lowered) else item for item in lowered]
    # What jax lowers to another program takes longest, since the autotuner knows nothing of it: first in the queue, so
    # that the others don't wait for it at the end (on a card 26 candidates took 14 s, of which two of these 10).
    slowest_first = sorted(range(len(plans)), key=lambda i: not plans[i].jax_config)
    compiling: dict[int, Future[_Made | Failure]] = {}
    with ThreadPoolExecutor(threads, thread_name_prefix="tuner-compile") as pool:
        for i in slowest_first:
            if isinstance(lowered[i], _Lowered):
                compiling[i] = pool.submit(_guarded, _compile, session, lowered[i])
    return [compiling[i].result() if i in compiling else item for i, item in enumerate(lowered)]


def _alike(session: WorkerSession, plan: _Plan) -> _Made:
    """One candidate. In a gang the ranks compile it at the same time, one candidate after another (XLA's autotuning
    talks between them), and nothing of it runs before all know that they made the same thing."""
    made, ranks = together(
        session.gang,
        "compile",
        lambda: _compile(session, _lower(session, plan)),
        same=lambda one: {"program": one.candidate.result.program, "collectives": list(one.schedule)},
        apart=lambda one: {"code": one.candidate.result.code},
    )
    differ = tuple(rank for rank, said in enumerate(ranks) if said["code"] != ranks[0]["code"])
    if not differ:
        return made
    return replace(made, candidate=replace(made.candidate, result=replace(made.candidate.result, ranks_differ=differ)))


def _lower(session: WorkerSession, plan: _Plan) -> _Lowered:
    start = time.perf_counter()
    jitted, lowered = {}, {}
    for part in session.parts:
        base = part.bases.setdefault(plan.config_key, part.step.base())
        jitted[part.name] = part.step.jit(base, plan.options)
        args, kwargs = session.state.parts[part.name].call()
        with configured(plan.jax_config):
            lowered[part.name] = part.step.bind(jitted[part.name].lower)(*args, **kwargs)
    return _Lowered(plan, jitted, lowered, time.perf_counter() - start)


def _compile(session: WorkerSession, item: _Lowered) -> _Made:
    requests, hits = session.events.here()
    start = time.perf_counter()
    with configured(item.plan.jax_config), stored_as_guided("fdo_profile" in item.plan.options):
        compiled = {name: lowered.compile() for name, lowered in item.lowered.items()}
    seconds = time.perf_counter() - start
    now_requests, now_hits = session.events.here()
    executables = {name: one.runtime_executable() for name, one in compiled.items()}
    hlo = {name: canonical_hlo(executable) for name, executable in executables.items()}
    cached = now_hits > hits
    codes = [
        code_of(executable, session.platform, hlo=hlo[name], cached=cached) for name, executable in executables.items()
    ]
    code, covers = _together(codes)
    schedule = tuple(entry for texts in hlo.values() for text in texts for entry in schedule_of(text))
    moved = _collective_bytes(compiled.values()) if schedule else {}
    peaks = [_peak_bytes(one) for one in compiled.values()]
    result = Compiled(
        id="",
        program=_program(session, item),
        code=code,
        code_covers=covers,
        lower_s=item.seconds,
        compile_s=seconds,
        # The steps run one after another: the one that needs most decides.
        peak_bytes=None if None in peaks else max(peak for peak in peaks if peak is not None),
        collectives=collectives_in("\n".join(text for texts in hlo.values() for text in texts)),
        cache_hit=cached if now_requests > requests else None,
        schedule=digest(schedule) if schedule else "",
        sketch=None if session.settled else _sketch(session, item, moved),
        collective_bytes=moved,
    )
    call = {part.name: part.step.bind(item.jitted[part.name]) for part in session.parts}
    if session.gang is not None:
        call = {name: session.gang.reporter.counting(function) for name, function in call.items()}
    candidate = Candidate(item.plan.key, item.jitted, compiled, call, item.plan.jax_config, result)
    return _Made(candidate, now_requests - requests, now_hits - hits, schedule)


def _sketch(session: WorkerSession, item: _Lowered, moved: Mapping[str, int]) -> Sketch:
    inputs = [session.state.parts[name].call() for name in item.lowered]
    return sketch_of(item.lowered.values(), moved, inputs)


def _collective_bytes(compiled: Iterable[jax.stages.Compiled]) -> dict[str, int]:
    """Of the plain texts: the canonical ones print loops inside the computations that they are in."""
    return collective_bytes_in("\n".join(one.as_text() or "" for one in compiled))


def _program(session: WorkerSession, item: _Lowered) -> str:
    """Hash of the lowered step; of several, over each one's with its name and weight."""
    states = session.state.parts
    each = {name: program_of(lowered, states[name].placement()) for name, lowered in item.lowered.items()}
    if len(each) == 1:
        return next(iter(each.values()))
    return digest(text for part in session.parts for text in (part.name, repr(part.weight), each[part.name]))


def _together(
    codes: Sequence[tuple[str, Literal["hlo", "hlo+codegen"]]],
) -> tuple[str, Literal["hlo", "hlo+codegen"]]:
    """The steps' codes (see `code_of`) as one of the same form: the two halves stand for HLO and for machine code."""
    if len(codes) == 1:
        return codes[0]
    halves = [digest(code[half] for code, _ in codes)[:16] for half in (slice(16), slice(16, None))]
    whole = all(covers == "hlo+codegen" for _, covers in codes)
    return "".join(halves), "hlo+codegen" if whole else "hlo"


def _peak_bytes(compiled: jax.stages.Compiled) -> int | None:
    sizes = compiled.memory_analysis()
    if sizes is None:
        return None
    return int(
        sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes - sizes.alias_size_in_bytes
    )
