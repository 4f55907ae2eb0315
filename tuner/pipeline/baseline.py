"""Stage 2, baseline: the control's time, its noise, the smallest effect that can be resolved, the null set."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuner.errors import SessionEnded, TunerError
from tuner.knobs import DEFAULT
from tuner.measure import (
    LOOKS,
    ControlNoise,
    Estimate,
    Tolerance,
    control_noise,
    resolution,
    steady_after,
    steps_per_block,
    tolerances,
)
from tuner.pipeline.bench import CONTROL, Bench, Benches
from tuner.pipeline.context import Run
from tuner.protocol.failure import Failure
from tuner.protocol.messages import NumericsReply, OptionValue
from tuner.store.events import NumericsCompared, TrialFinished
from tuner.store.records import BaselineRecord, ProbeRecord

__all__ = ["ALTERNATIONS", "WARM_UP", "pair_seconds", "run_baseline", "seal_seconds"]

# Work in one block: long enough that the clock and the dispatch don't count. On a CPU short blocks spend the same
# seconds better, since a round's noise comes from the machine and not from the clock.
_BLOCK_S = {"gpu": 0.2, "cpu": 0.05}
_TWIN = "control-twin"
# Rounds of control against control: at least so many, at most five times that, within this share of the budget.
_MIN_ROUNDS = 12
_NOISE_SHARE = 0.03
_STEADY_BLOCKS = 16
_NUMERICS_STEPS = 8
_NUMERICS_S = 0.5
# Settings that change how the compiler reaches the same numbers, for the null set: other vector widths and other GEMM
# kernels reorder sums. A tolerance below what these do would reject harmless candidates.
_BENIGN: dict[str, tuple[dict[str, OptionValue], ...]] = {
    "cpu": ({"xla_cpu_prefer_vector_width": 128}, {"xla_backend_optimization_level": 1}),
    "gpu": ({"xla_gpu_enable_triton_gemm": False}, {"xla_gpu_exclude_nondeterministic_ops": True}),
}
# What confirm and seal need: pairs of fresh processes, six at least and more while they take no more than this share of
# the budget; blocks in each; then the bundle's two processes.
_CONFIRM_SHARE = 0.3
ALTERNATIONS = 10
WARM_UP = 2
_SEAL_PROCESSES = 2
_CORES_A_START = 4
_REPORT_S = 2.0


def run_baseline(run: Run, benches: Benches) -> BaselineRecord:
    """Measure the home control, and plan the rest of the budget by what it costs."""
    bench = benches.home()
    platform = bench.loaded.platform
    run.status("baseline", "finding the steady state")
    block_s = _BLOCK_S.get(platform, _BLOCK_S["gpu"])
    steps, discarded = _calibrate(run, bench, block_s)
    step_s = _step_s(bench, steps)
    numerics_steps = max(2, min(_NUMERICS_STEPS, int(_NUMERICS_S / max(step_s, 1e-9))))
    benign = _benign(run, bench)
    limits = _null_set(run, bench, numerics_steps, benign)
    noise, control_s = _noise(run, bench, steps)
    pair_s, pairs, reserve_s, skipped = _plan(run, bench, steps, control_s)
    looks = tuple(n for n in LOOKS if n <= pairs)
    smallest = resolution(noise.sd, 0.0, rounds=ALTERNATIONS, pairs=pairs, looks=looks)
    run.notice(f"smallest effect this budget can resolve: {100 * math.expm1(smallest):.2g} %")
    run.emit(
        TrialFinished(
            number=0,
            stage="baseline",
            session=bench.name,
            config=DEFAULT,
            value=0.0,
            estimate=Estimate(gain=0.0, se=0.0, low=0.0, high=0.0, n=noise.n),
            fingerprint=bench.fingerprint,
            label="default",
        )
    )
    record = BaselineRecord(
        program=bench.control.program,
        control_ms=1e3 * control_s,
        steps_per_block=steps,
        steps_discarded=discarded,
        noise=noise.sd,
        drift=noise.drift,
        resolution=smallest,
        start_s=bench.loaded.import_s + bench.loaded.init_s + bench.loaded.build_s,
        compile_s=bench.control.compile_s,
        peak_bytes=bench.control.peak_bytes,
        tolerances=limits,
        numerics_steps=numerics_steps,
        carried=bench.loaded.carried,
        pair_s=pair_s,
        reserve_s=reserve_s,
        skipped=skipped,
    )
    run.plan(record)
    return record


def _calibrate(run: Run, bench: Bench, block_s: float) -> tuple[int, int]:
    """Steps a block, and how many first blocks are not yet steady. A step that never settles is noticed."""
    first = bench.block(CONTROL, steps=1)
    steps = steps_per_block(first.seconds, target_s=block_s)
    times = []
    for _ in range(_STEADY_BLOCKS):
        block = bench.block(CONTROL, steps=steps, reset=False)
        times.append(block.seconds / block.steps)
    after = steady_after(times)
    if after is None:
        run.notice("the step's time did not settle during calibration; intervals will be wide")
        return steps_per_block(sorted(times)[len(times) // 2], target_s=block_s), len(times)
    settled = sorted(times[after:])
    return steps_per_block(settled[len(settled) // 2], target_s=block_s), after * steps


def _step_s(bench: Bench, steps: int) -> float:
    block = bench.block(CONTROL, steps=steps)
    return block.seconds / block.steps


def _noise(run: Run, bench: Bench, steps: int) -> tuple[ControlNoise, float]:
    """Control against control, in rounds of the same form that candidates get."""
    share = _NOISE_SHARE * run.options.budget_s
    began = run.budget.now()
    gains: list[float] = []
    times: list[float] = []
    while len(gains) < _MIN_ROUNDS or (run.budget.now() - began < share and len(gains) < 5 * _MIN_ROUNDS):
        result, failures = bench.round("baseline", [_TWIN], steps=steps)
        if failures:
            raise SessionEnded(failures[_TWIN])
        gains.append(result[_TWIN])
        times.append(bench.last_control_s)
        run.status("baseline", "control against control", done=len(gains), total=_MIN_ROUNDS)
    return control_noise(gains, times), sorted(times)[len(times) // 2]


def _benign(run: Run, bench: Bench) -> list[str]:
    """Compile the control's twin and the benign changes that this compiler knows, side by side; returns the latter's
    handles. A benign change that doesn't compile tells nothing."""
    known = run.record("probe", ProbeRecord).option_types
    changes = [o for o in _BENIGN.get(bench.loaded.platform, ()) if o.keys() <= known.keys()]
    handles = {f"benign-{index}": options for index, options in enumerate(changes)}
    made = bench.compile_plain({_TWIN: {}, **handles})
    if isinstance(twin := made[_TWIN], Failure):
        raise SessionEnded(twin)
    return [h for h in handles if not isinstance(made[h], Failure)]


def _null_set(run: Run, bench: Bench, steps: int, benign: Sequence[str]) -> tuple[Tolerance, ...]:
    """What harmless changes do to the results: the control again, inputs moved by one ulp, benign recompiles."""
    run.status("baseline", "measuring what harmless changes do to the results")
    saved = bench.numerics(CONTROL, steps=steps, save=True)
    if isinstance(saved, Failure):
        raise TunerError(
            f"the step fails under the default settings: {saved.message}",
            where=str(run.workload.path),
            next=f"see {bench.launch.log}",
        )
    replies: list[NumericsReply] = []
    for handle, nudge in ((CONTROL, False), (CONTROL, True)):
        _keep(run, bench, bench.numerics(handle, steps=steps, nudge=nudge), replies)
    for handle in benign:
        _keep(run, bench, bench.numerics(handle, steps=steps), replies)
    bench.session.release(benign)
    return tolerances(replies)


def _keep(run: Run, bench: Bench, reply: NumericsReply | Failure, replies: list[NumericsReply]) -> None:
    """A benign recompile that fails tells nothing; the control's own failure would have ended the run before."""
    if isinstance(reply, NumericsReply):
        replies.append(reply)
        run.emit(NumericsCompared(session=bench.name, config=DEFAULT, purpose="null", reply=reply))


def pair_seconds(run: Run, processes: int, *, start_s: float, compile_s: float, block_s: float) -> float:
    """What one confirmation pair takes, of `processes` fresh processes that each need `start_s` and `compile_s`.

    They start side by side as far as there are cores, compile one after another, and alternate in blocks.
    """
    beside = max(1, int(run.host.usable_cores) // _CORES_A_START)
    return math.ceil(processes / beside) * start_s + processes * (compile_s + (ALTERNATIONS + WARM_UP) * block_s)


def seal_seconds(*, start_s: float, compile_s: float) -> float:
    """What is left to do after the confirmation."""
    return _SEAL_PROCESSES * (start_s + compile_s) + _REPORT_S


def _plan(run: Run, bench: Bench, steps: int, step_s: float) -> tuple[float, int, float, tuple[str, ...]]:
    """Seconds that a confirmation pair takes; pairs planned; seconds that confirm and seal need; stages skipped.

    Says so if the budget is short.
    """
    loaded = bench.loaded
    start_s = loaded.import_s + loaded.init_s + loaded.build_s
    compile_s = bench.control.lower_s + bench.control.compile_s
    process_s = start_s + compile_s
    # A block has one discarded step before those that count.
    pair_s = pair_seconds(run, 2, start_s=start_s, compile_s=compile_s, block_s=(steps + 1) * step_s)
    pairs = int(min(LOOKS[-1], max(LOOKS[0], _CONFIRM_SHARE * run.options.budget_s / pair_s)))
    reserve_s = pairs * pair_s + seal_seconds(start_s=start_s, compile_s=compile_s)
    left_s = run.options.budget_s - run.budget.elapsed_s - reserve_s
    if left_s >= 4 * process_s:
        return pair_s, pairs, reserve_s, ()
    skipped = ("search", "presets", "environment-lane knobs") if left_s < process_s else ("search", "presets")
    minimum_s = run.budget.elapsed_s + reserve_s + 4 * process_s
    run.notice(
        f"a budget of {run.options.budget_s:.0f} s is short for this step: the confirmation alone takes about "
        f"{reserve_s:.0f} s. Skipped: {', '.join(skipped)}. From {minimum_s:.0f} s on nothing is skipped"
    )
    return pair_s, pairs, reserve_s, skipped
