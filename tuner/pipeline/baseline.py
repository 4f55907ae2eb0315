"""Stage 2, baseline: the control's time, its noise, the smallest effect that can be resolved, the null set."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import msgspec

from tuner.errors import SessionEnded, StoreError, TunerError
from tuner.knobs import DEFAULT
from tuner.measure import (
    ASSUMED_PROCESS_SD,
    WARM_UP_STEPS,
    BlockForm,
    ControlNoise,
    Estimate,
    Limits,
    PairPlan,
    block_form,
    control_noise,
    opens_apart,
    pair_levels,
    plan_pairs,
    process_sd_with,
    shorter,
    spread,
    steady_after,
    steps_per_block,
    steps_to_tell,
)
from tuner.pipeline.bench import CONTROL, Bench
from tuner.pipeline.benches import Benches
from tuner.pipeline.context import Run
from tuner.pipeline.costs import ProcessCost, pair_cost, seal_seconds
from tuner.pipeline.nulls import benign_variants, limits_of
from tuner.protocol.failure import Failure
from tuner.protocol.messages import NumericsReply
from tuner.store.events import NumericsCompared, TrialFinished
from tuner.store.records import BaselineRecord, ProbeRecord

__all__ = ["run_baseline"]

# Work in one block: long enough that the clock and the dispatch don't count. On a CPU short blocks spend the same
# seconds better, since a round's noise comes from the machine and not from the clock.
_BLOCK_S = {"gpu": 0.2, "cpu": 0.05}
# Of the budget, what a block of steps timed one by one may take at most: a run has some hundreds of blocks.
_BLOCK_SHARE = 1 / 400
_TWIN = "control-twin"
_OPENING_S = 0.3  # after so much work a card's clocks are where they stay
# Rounds of control against control: at least so many, at most five times that, within this share of the budget.
_MIN_ROUNDS = 12
_NOISE_SHARE = 0.03
# Noise of a round, in margins, that is quiet enough for looking for candidates; and by how much shorter blocks, which
# should have that, may miss it.
_QUIET = 0.4
_NOISIER = 1.5
_STEADY_BLOCKS = 16
_SETTLING = 2  # so often the steady state is looked for
# Single steps for the spread within a block: at most so many, and within about so many seconds.
_SINGLE_STEPS = 16
_SINGLE_S = 2.0
_NUMERICS_STEPS = 8
_NUMERICS_S = 0.5
# Pairs of fresh processes: six at least, and more or longer ones while they take no more than this share of the budget.
_CONFIRM_SHARE = 0.3


def run_baseline(run: Run, benches: Benches) -> BaselineRecord:
    """Measure the home control, and plan the rest of the budget by what it costs."""
    bench = benches.home()
    platform = bench.loaded.platform
    run.status("baseline", "finding the steady state")
    block_s = _BLOCK_S.get(platform, _BLOCK_S["gpu"])
    steps, discarded, settled = _calibrate(run, bench, block_s)
    form, step_s, reset_s = _form(run, bench, steps, block_s)
    step_noise = _step_noise(bench, steps, step_s)
    numerics_steps = max(2, min(_NUMERICS_STEPS, int(_NUMERICS_S / max(step_s, 1e-9))))
    benign = _benign(run, bench)
    limits = _null_set(run, bench, numerics_steps, benign)
    form, noise, control_s = _opened(run, bench, form, step_s)
    exploring_steps, exploring_noise = _exploring(run, bench, form, noise.sd)
    bench.name_stragglers()
    process_sd, known_pairs = _process_spread(run, bench, noise)
    cost = ProcessCost(
        start_s=bench.loaded.import_s + bench.loaded.init_s + bench.loaded.build_s,
        compile_s=bench.control.lower_s + bench.control.compile_s,
        block_s=form.all_steps * step_s,
        reset_s=reset_s,
    )
    plan, pair_s, reserve_s, skipped = _plan(run, cost, noise, process_sd)
    run.notice(
        f"smallest effect this budget can resolve: {_percent(plan.resolution)}, in {plan.looks[-1]} pairs of processes "
        f"that differ by {_percent(process_sd)} {_source(known_pairs)}"
    )
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
        first_program=bench.control.first_program,
        control_ms=1e3 * control_s,
        steps_per_block=form.steps,
        steps_discarded=discarded,
        noise=noise.sd,
        drift=noise.drift,
        resolution=plan.resolution,
        start_s=cost.start_s,
        compile_s=bench.control.compile_s,
        peak_bytes=bench.control.peak_bytes,
        tolerances=limits.usual,
        strict_tolerances=limits.strict,
        numerics_steps=numerics_steps,
        carried=bench.loaded.carried,
        pair_s=pair_s,
        reserve_s=reserve_s,
        skipped=skipped,
        step_noise=step_noise,
        level_noise=noise.level,
        settled=settled,
        process_noise=process_sd,
        process_pairs=known_pairs,
        objective=run.objective,
        warm_up=form.warm_up,
        step_ms=1e3 * step_s,
        reset_s=reset_s,
        exploring_steps=exploring_steps,
        exploring_noise=exploring_noise,
        opening_steps=form.opening,
    )
    run.plan(record)
    return record


def _calibrate(run: Run, bench: Bench, block_s: float) -> tuple[int, int, bool]:
    """Steps a block, how many first steps are not yet steady, and whether the times became steady at all, in at most
    two tries."""
    first = bench.block(CONTROL, BlockForm(steps=1))
    steps = steps_per_block(first.seconds, target_s=block_s)
    discarded = 0
    for _ in range(_SETTLING):
        blocks = [bench.block(CONTROL, BlockForm(steps=steps), reset=False) for _ in range(_STEADY_BLOCKS)]
        times = [b.seconds / b.steps for b in blocks]
        after = steady_after(times)
        if after is not None:
            settled = sorted(times[after:])
            return steps_per_block(settled[len(settled) // 2], target_s=block_s), discarded + after * steps, True
        discarded += len(times) * steps
    run.notice("the step's time did not settle during calibration: a gain of a few percent can't be told here")
    return steps_per_block(sorted(times)[len(times) // 2], target_s=block_s), discarded, False


def _step_noise(bench: Bench, steps: int, step_s: float) -> float | None:
    """Spread of single steps, each timed to its end by itself; None where a block is one step."""
    if steps == 1:
        return None
    single = BlockForm(steps=1)
    number = max(4, min(_SINGLE_STEPS, int(_SINGLE_S / (single.all_steps * step_s))))
    return spread([bench.block(CONTROL, single, reset=False).step_s for _ in range(number)])


def _process_spread(run: Run, bench: Bench, noise: ControlNoise) -> tuple[float, int]:
    """By how much processes differ, and in how many earlier pairs of this program and environment: (assumed, 0) if none
    is known."""
    environment = run.record("probe", ProbeRecord).environment
    try:
        known = run.index.pair_spread(bench.control.program, environment.key, objective=run.options.objective)
    except StoreError as trouble:
        run.notice(f"what earlier runs say about the noise can't be read: {trouble.what}")
        known = None
    if known is None:
        return ASSUMED_PROCESS_SD, 0
    pair_sd, pairs = known
    return process_sd_with(pair_levels(pair_sd, noise.sd, pairs=pairs), ASSUMED_PROCESS_SD), pairs


def _source(pairs: int) -> str:
    return f"(as in {pairs} pairs of earlier runs)" if pairs else "(assumed: none were compared yet)"


def _percent(gain: float) -> str:
    return f"{100 * math.expm1(gain):.2g} %"


def _form(run: Run, bench: Bench, steps: int, block_s: float) -> tuple[BlockForm, float, float]:
    """How blocks are timed for this objective, `steps` steps of mean times at a time; seconds that a step takes, and
    those that putting the state back takes before a block."""
    objective = run.objective
    form = BlockForm(steps=steps, quantile=objective.quantile)
    began = run.budget.now()
    block = bench.block(CONTROL, form)
    reset_s = max(0.0, run.budget.now() - began - block.first_s - block.seconds)
    step_s = block.seconds / block.steps
    if objective.quantile is None:
        return form, step_s, reset_s
    form = block_form(objective, step_s, target_s=block_s, most_s=_BLOCK_SHARE * run.options.budget_s)
    needed = steps_to_tell(objective.quantile)
    if form.steps < needed:
        enough_s = (WARM_UP_STEPS + needed) * step_s / _BLOCK_SHARE
        run.notice(
            f"{objective.name} can't be told from {form.steps} steps a block, and a budget of "
            f"{run.options.budget_s:.0f} s affords no more: what is compared is that quantile of so few steps. "
            f"It takes {needed} steps, for which a budget of about {enough_s:.0f} s has room"
        )
    return form, step_s, reset_s


def _exploring(run: Run, bench: Bench, form: BlockForm, noise: float) -> tuple[int, float]:
    """Steps of a block while candidates are looked for, and the noise of a round of such blocks: fewer than `form` has
    where the machine is quieter than that needs, and stays so."""
    wanted = _QUIET * run.margin
    steps = shorter(form.steps, noise, wanted) if form.quantile is None else form.steps
    if steps < form.steps:
        found, *_ = _noise(run, bench, msgspec.structs.replace(form, steps=steps), share=0.0)
        if found.sd <= _NOISIER * wanted:
            return steps, found.sd
    return form.steps, noise


def _opened(run: Run, bench: Bench, form: BlockForm, step_s: float) -> tuple[BlockForm, ControlNoise, float]:
    """`form`, its rounds opened by steps that don't count where the first block of a round is unlike the others; the
    noise of a round, and what the control takes."""
    noise, rounds, control_s = _noise(run, bench, form)
    if run.loaded.platform != "cpu" and opens_apart(rounds, run.margin):
        form = msgspec.structs.replace(form, opening=math.ceil(_OPENING_S / step_s))
        noise, _, control_s = _noise(run, bench, form)
    return form, noise, control_s


def _noise(
    run: Run, bench: Bench, form: BlockForm, *, share: float = _NOISE_SHARE
) -> tuple[ControlNoise, list[tuple[float, float]], float]:
    """Control against control, in rounds of the same form that candidates get, for that share of the budget: the noise,
    seconds a step of both blocks of each round in their order, and the control's median."""
    seconds = share * run.options.budget_s
    began = run.budget.now()
    gains: list[float] = []
    times: list[float] = []
    rounds: list[tuple[float, float]] = []
    while len(gains) < _MIN_ROUNDS or (run.budget.now() - began < seconds and len(gains) < 5 * _MIN_ROUNDS):
        result, failures = bench.round("baseline", [_TWIN], form)
        if failures:
            raise SessionEnded(failures[_TWIN])
        gains.append(result[_TWIN])
        first, second = bench.last
        times.append(bench.value_s(first if first.id == CONTROL else second))
        rounds.append((first.step_s, second.step_s))
        run.status("baseline", "control against control", done=len(gains), total=_MIN_ROUNDS)
    return control_noise(gains, times), rounds, sorted(times)[len(times) // 2]


def _benign(run: Run, bench: Bench) -> list[str]:
    """Compile the control's twin and the benign changes, side by side; returns the latter's handles. A benign change
    that doesn't compile tells nothing."""
    changes = {v.id: v.compiler_options for v in benign_variants(run)}
    made = bench.compile_plain({_TWIN: {}, **changes})
    if isinstance(twin := made[_TWIN], Failure):
        raise SessionEnded(twin)
    return [h for h in changes if not isinstance(made[h], Failure)]


def _null_set(run: Run, bench: Bench, steps: int, benign: Sequence[str]) -> Limits:
    """What harmless changes do to the results: repeats, inputs moved by rounding errors, benign recompiles."""
    run.status("baseline", "measuring what harmless changes do to the results")
    saved = bench.numerics(CONTROL, steps=steps, save=True)
    if isinstance(saved, Failure):
        raise TunerError(
            f"the step fails under the default settings: {saved.message}",
            where=str(run.workload.path),
            next=f"see {bench.launch.log}",
        )
    limits = limits_of(functools.partial(bench.numerics, steps=steps), benign, note=_note(run, bench))
    bench.session.release(benign)
    if isinstance(limits, Failure):
        raise SessionEnded(limits)
    return limits


def _note(run: Run, bench: Bench) -> Callable[[str, NumericsReply], None]:
    def note(purpose: str, reply: NumericsReply) -> None:
        run.emit(NumericsCompared(session=bench.name, config=DEFAULT, purpose=purpose, reply=reply))

    return note


def _plan(
    run: Run, cost: ProcessCost, noise: ControlNoise, process_sd: float
) -> tuple[PairPlan, float, float, tuple[str, ...]]:
    """The confirmation's plan; seconds that a pair takes; seconds that confirm and seal need; stages skipped.

    Says so if the budget is short.
    """
    process_s = cost.start_s + cost.compile_s
    pair = pair_cost(run, 2, cost)
    plan = plan_pairs(noise.sd, process_sd, cost=pair, seconds=_CONFIRM_SHARE * run.options.budget_s, margin=run.margin)
    pair_s = pair.seconds(plan.turns)
    reserve_s = plan.looks[-1] * pair_s + seal_seconds(run, cost)
    left_s = run.options.budget_s - run.budget.elapsed_s - reserve_s
    if left_s >= 4 * process_s:
        return plan, pair_s, reserve_s, ()
    skipped = ("search", "presets")
    minimum_s = run.budget.elapsed_s + reserve_s + 4 * process_s
    run.notice(
        f"a budget of {run.options.budget_s:.0f} s is short for this step: the confirmation alone takes about "
        f"{reserve_s:.0f} s. Skipped: {', '.join(skipped)}. From {minimum_s:.0f} s on nothing is skipped"
    )
    return plan, pair_s, reserve_s, skipped
