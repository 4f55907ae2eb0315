"""Stage 1, probe: what is here, and which knobs exist and apply here. No trial is spent on the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tuner.errors import SessionEnded, TunerError, WorkloadError
from tuner.knobs import PROFILE_FLAG, UNSET, XLA_FLAGS, Knob, KnobStatus, applies, from_workload, pins, scaled, typed
from tuner.machine import environment_of
from tuner.pipeline.bench import Bench
from tuner.pipeline.benches import Benches
from tuner.pipeline.context import Run
from tuner.pipeline.flag_parser import FlagParser
from tuner.pipeline.launches import OWN_PGLE
from tuner.profile import churn
from tuner.protocol.messages import Loaded, OptionValue
from tuner.session.refusal import refusal
from tuner.store.records import ProbeRecord

__all__ = ["offered_knobs", "run_probe"]


def run_probe(run: Run, benches: Benches, *, lasting: bool = True) -> ProbeRecord:
    """Start the home session and ask it, the compiler and the XLA_FLAGS parser what there is. `lasting`: the run's logs
    stay when it has ended."""
    run.status("probe", "starting the home session")
    with FlagParser(run, [k for k in run.space.knobs if k.risk != "hang" or k.name in run.options.override]) as parser:
        bench = _home(run, benches, lasting=lasting)
        not_as_flag = parser.refused()
    loaded = bench.loaded
    _refuse_overwritten_flags(run, loaded)
    for text in (*loaded.notices, *(found.told for found in churn(loaded.recompiled))):
        run.notice(text)
    for name in OWN_PGLE:
        if run.inherited.get(name):
            run.notice(f"{name} is inherited, and off in every session: it recompiles steps, and pgle is a knob here")
    offered = offered_knobs(run)
    left: list[KnobStatus] = []
    staying = [k for k in offered if _stays(run, k, left)]
    knobs = [k for knob in staying if (k := _sized(knob, bench.control.collective_bytes, left)) is not None]
    run.status("probe", f"asking the compiler about {len(knobs)} knobs")
    types = _types(bench, knobs)
    live = [kept for k in knobs if (kept := _as_known(k, types, not_as_flag, left)) is not None]
    live = _drop_bad_values(bench, live, types, left)
    return ProbeRecord(
        environment=environment_of(loaded, run.devices, run.host),
        offered=tuple(k.name for k in offered),
        live=tuple(k.name for k in live),
        knobs=tuple(live),
        left=tuple(left),
        option_types={n: t for n, t in types.items() if t is not None},
        notices=loaded.notices,
    )


def offered_knobs(run: Run) -> list[Knob]:
    """The space's knobs and those that the workload declares itself. Raises SpaceError where both have one name."""
    own = from_workload(run.loaded.knobs_declared, source=str(run.workload.path), defaults=run.workload.defaults)
    return list(run.space.with_knobs(own).knobs)


def _home(run: Run, benches: Benches, *, lasting: bool) -> Bench:
    """The home session; if it can't start, the run ends with the reason in the user's words."""
    try:
        return benches.home()
    except SessionEnded as ended:
        failure = ended.failure
    flags = "inherited XLA_FLAGS" if XLA_FLAGS in run.inherited else ""
    raise refusal(
        failure, workload=run.workload.path, flags=flags, log=run.folder.logs if lasting else None
    ) or TunerError(
        f"the workload fails under the default settings: {failure.message}",
        where=f"{run.workload.path} ({failure.phase})",
        next=f"the whole log is in {run.folder.logs}" if lasting else "",
        log=() if lasting else failure.log_tail,
    )


def _refuse_overwritten_flags(run: Run, loaded: Loaded) -> None:
    """A workload that sets XLA_FLAGS itself would overwrite whatever production is handed."""
    if "XLA_FLAGS" in loaded.environ_changed:
        value = loaded.environ_changed["XLA_FLAGS"]
        line = next(
            (
                f":{number}"
                for number, text in enumerate(run.workload.path.read_text(errors="replace").splitlines(), 1)
                if "XLA_FLAGS" in text
            ),
            "",
        )
        raise WorkloadError(
            f"sets XLA_FLAGS to {value!r} when it is imported: every setting tried or emitted would be lost",
            where=f"{run.workload.path}{line}",
            next="take the assignment out and set XLA_FLAGS in the environment; tune keeps inherited flags",
        )
    for name in loaded.environ_changed:
        run.notice(
            f"the workload changes {name} itself when it is imported; what production inherits there is overwritten"
        )


def _stays(run: Run, knob: Knob, left: list[KnobStatus]) -> bool:
    """False if the knob is held, pinned or doesn't apply; the reason is appended to `left`."""
    reason = applies(knob.when, run.facts)
    status = "inapplicable"
    if reason is None and knob.carrier == "layout":
        reason = _layout_fixed(run)
    if reason is None and knob.carrier == "pgle":
        reason = _pgle_fixed(run)
    if reason is None and knob.risk == "hang" and knob.name not in run.options.override:
        status, reason = "risky", f"it can hang the machine's GPUs; --override {knob.name} lets it be tuned"
    given = [run.options.hold[name] for name in (knob.name, *knob.aliases) if name in run.options.hold]
    if reason is None and given and knob.name not in run.workload_knobs:
        status, reason = "held", f"--knob holds it at {given[-1]!r} for the whole run"
    if reason is None and knob.name in run.workload_knobs:
        status, reason = "held", f"--knob holds it at {run.workload_knobs[knob.name]!r} for the whole run"
    for name, value in knob.requires.items():
        if reason is None and run.held.get(name) not in (UNSET, value):
            reason = f"means nothing without {name}={value}, and --knob holds that at {run.held.get(name)!r}"
    if reason is None and knob.name in pins(run.inherited) and knob.name not in run.options.override:
        status = "pinned"
        reason = f"inherited as {run.inherited[knob.name]!r}; --override {knob.name} lets it be tuned"
    if reason is not None:
        left.append(KnobStatus(name=knob.name, status=status, reason=reason))
    return reason is None


def _sized(knob: Knob, program: Mapping[str, int], left: list[KnobStatus]) -> Knob | None:
    """The knob with the program's own numbers of bytes in place of shares of them."""
    sized = scaled(knob, program)
    if sized is None:
        reason = f"its values are shares of the program's {' or '.join(knob.scale)}, whose size is not known here"
        left.append(KnobStatus(name=knob.name, status="inapplicable", reason=reason))
    return sized


def _layout_fixed(run: Run) -> str | None:
    """Why the process layout can't be tuned here; None if it can."""
    if run.options.launch:
        return "--launch says how many processes there are"
    if run.loaded.source == "script":
        return "several processes need a workload with build(): a script's step is found by its times"
    return None


def _pgle_fixed(run: Run) -> str | None:
    """Why profiles can't be tuned here; None if they can."""
    if len(run.loaded.weights) > 1:
        return "a profile holds one program's times, and this workload has several steps"
    if run.options.launch and run.options.pgle == "cache":
        return "a warmed cache has rank 0's executable alone: --pgle file or auto delivers a profile to all ranks"
    if PROFILE_FLAG in run.inherited.get("XLA_FLAGS", ""):
        return "the inherited XLA_FLAGS hand a profile to every compile already, the default's included"
    return None


def _types(bench: Bench, knobs: Sequence[Knob]) -> dict[str, str | None]:
    """What the compiler calls each option name; None: no such option."""
    names = [n for k in knobs if k.carrier == "xla_flag" for n in (k.name, *k.aliases)]
    benign = ("xla_cpu_prefer_vector_width", "xla_backend_optimization_level", "xla_gpu_enable_triton_gemm")
    more = (*benign, "xla_gpu_exclude_nondeterministic_ops")
    return bench.session.probe(list(dict.fromkeys([*names, *more]))).types


def _as_known(
    knob: Knob, types: Mapping[str, str | None], not_as_flag: Mapping[str, str], left: list[KnobStatus]
) -> Knob | None:
    """The knob under the name and in the lane that this jaxlib has for it; None if it has none."""
    if knob.carrier != "xla_flag":
        return knob
    for name in (knob.name, *knob.aliases):
        as_option, as_flag = types.get(name) is not None, name not in not_as_flag
        if not as_option and not as_flag:
            continue
        if not as_flag:
            left.append(KnobStatus(name=knob.name, status="unsupported", reason=not_as_flag[name]))
            return None
        if name != knob.name:
            left.append(KnobStatus(name=knob.name, status="renamed", reason=f"this jaxlib calls it {name}"))
        lane = knob.lane if as_option else "environment"
        return msgspec.structs.replace(knob, name=name, lane=lane)
    left.append(KnobStatus(name=knob.name, status="unsupported", reason="this jaxlib has no such option"))
    return None


def _drop_bad_values(
    bench: Bench, knobs: Sequence[Knob], types: Mapping[str, str | None], left: list[KnobStatus]
) -> list[Knob]:
    """Without the values that the compiler refuses for their type."""
    values: dict[str, tuple[OptionValue, ...]] = {
        k.name: tuple(typed(k.type, v) for v in k.values if v != UNSET)
        for k in knobs
        if k.carrier == "xla_flag" and types.get(k.name) is not None
    }
    bad = bench.session.probe([], values).bad_values
    kept = []
    for knob in knobs:
        complaints = bad.get(knob.name, {})
        wrong = {v: c for v in knob.values if v != UNSET and (c := complaints.get(str(typed(knob.type, v))))}
        if wrong:
            left.append(
                KnobStatus(name=knob.name, status="unsupported", reason=next(iter(wrong.values())), values=tuple(wrong))
            )
        rest = tuple(v for v in knob.values if v not in wrong)
        if any(v != UNSET for v in rest):
            kept.append(msgspec.structs.replace(knob, values=rest))
    return kept
