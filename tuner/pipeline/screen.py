"""Stage 4, screen: flip each knob alone; what is inert, fails or computes wrong numbers leaves the space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.knobs import DEFAULT, UNSET, Config, Knob, KnobStatus
from tuner.pipeline.bench import Benches
from tuner.pipeline.context import Run
from tuner.pipeline.evaluate import Plan, evaluate, measured
from tuner.protocol.failure import FailureClass
from tuner.store.events import TrialFinished
from tuner.store.records import BaselineRecord, ScreenRecord

__all__ = ["run_screen"]

# A value that alone costs more than this is not worth combining (log scale).
_HOPELESS = 0.05
# What a knob's status is called that leaves for such a failure; "failed" for the others.
_STATUSES = {FailureClass.WRONG_RESULT: "wrong", FailureClass.OVER_MEMORY: "over_memory"}
# How many are compiled before the clock is looked at again, where compiling is dear.
_CHUNK = 12


def run_screen(run: Run, benches: Benches) -> ScreenRecord:
    """Measure each live knob's values alone: first those of the option lane, together, then a session a value. Within
    each, groups that the user puts first come first: what the budget has no room for is the rest."""
    knobs = _in_order(run.live, run.options.first)
    share = run.budget.share_s("screen")
    # What was never timed alone is worth more than combinations of what was: it may take the search's share as well.
    spare = run.budget.share_s("screen", "search") - share
    began = run.budget.now()
    option = [c for k in knobs.values() if k.lane == "option" for c in _flips(k)]
    environment = [c for k in knobs.values() if k.lane == "environment" for c in _flips(k)]
    postponed: list[Config] = []
    option_share = share - min(0.6 * share, len(environment) * _session_s(run)) if option else 0.0
    trials: list[TrialFinished] = []
    chunks = _chunks(run, option, option_share, threads=benches.home().threads)
    for index, chunk in enumerate(chunks):
        spent_s = run.budget.now() - began
        # the next one would end more than half outside
        if index and spent_s + spent_s / index / 2 > option_share + spare:
            postponed += [c for later in chunks[index:] for c in later]
            break
        trials += evaluate(run, benches, chunk, _plan(run, max(0.0, option_share - spent_s) / (len(chunks) - index)))
    for config in environment:
        left_s = share + spare - (run.budget.now() - began)
        if config not in run.trials and not _affordable(run, left_s):
            postponed.append(config)
        else:
            trials += evaluate(run, benches, [config], _plan(run, left_s))
    live, left = _sort_out(run, knobs, {t.config: t for t in trials})
    if postponed:
        left += [
            KnobStatus(
                name=name,
                status="skipped",
                reason="the budget has no room for compiling it, or for a process of its own",
                values=tuple(c.get(name) for c in postponed if name in c.names),
            )
            for name in dict.fromkeys(n for c in postponed for n in c.names)
        ]
    return ScreenRecord(flips=tuple(measured(run, trials)), live=live, left=tuple(left))


def _in_order(knobs: Mapping[str, Knob], first: Sequence[str]) -> dict[str, Knob]:
    """Knobs of the groups `first` in that order, then the others as they stand."""
    ranks = {group: rank for rank, group in enumerate(first)}
    return dict(sorted(knobs.items(), key=lambda item: ranks.get(item[1].group, len(ranks))))


def _flips(knob: Knob) -> list[Config]:
    """The knob's values alone, together with the settings without which they have no meaning."""
    return [Config.of({**knob.requires, knob.name: v}) for v in knob.values if v != UNSET]


def _plan(run: Run, seconds: float) -> Plan:
    return Plan(stage="screen", seconds=seconds, half_width=run.margin, guard=True)


def _chunks(run: Run, configs: Sequence[Config], share_s: float, *, threads: int) -> list[list[Config]]:
    """All at once, so that they share rounds; in batches where compiling alone might take more than half the share."""
    compile_s = run.record("baseline", BaselineRecord).compile_s
    if compile_s * len(configs) / max(1, threads / 2) < share_s / 2:
        return [list(configs)]
    return [list(configs[i : i + _CHUNK]) for i in range(0, len(configs), _CHUNK)]


def _session_s(run: Run) -> float:
    """What one more session costs: its start, its control's compile, its offset."""
    baseline = run.record("baseline", BaselineRecord)
    return baseline.start_s + baseline.compile_s + 28 * baseline.block_s


def _affordable(run: Run, left_s: float) -> bool:
    """True if the share has room for one more session. They are taken in the space's order, first values first."""
    skipped = run.record("baseline", BaselineRecord).skipped
    return "environment-lane knobs" not in skipped and left_s >= _session_s(run)


def _sort_out(
    run: Run, knobs: Mapping[str, Knob], trials: Mapping[Config, TrialFinished]
) -> tuple[dict[str, tuple[str, ...]], list[KnobStatus]]:
    """Which values stay; and for those that leave, why."""
    control = run.trials[DEFAULT]
    live: dict[str, tuple[str, ...]] = {}
    left: list[KnobStatus] = []
    for knob in knobs.values():
        stay: list[str] = []
        gone: dict[tuple[str, str], list[str]] = {}
        programs: dict[str, str] = {}
        for value in knob.values:
            if value == UNSET:
                continue
            trial = trials.get(Config.of({**knob.requires, knob.name: value}))
            if trial is None:
                continue
            why = _why_it_leaves(trial, control, programs)
            if why is None:
                stay.append(value)
                programs.setdefault(trial.fingerprint, value)
            else:
                gone.setdefault(why, []).append(value)
        left += [
            KnobStatus(name=knob.name, status=status, reason=reason, values=tuple(values))
            for (status, reason), values in gone.items()
        ]
        if stay:
            live[knob.name] = (UNSET, *stay)
    return live, left


def _why_it_leaves(trial: TrialFinished, control: TrialFinished, programs: Mapping[str, str]) -> tuple[str, str] | None:
    if trial.failure is not None:
        status = _STATUSES.get(trial.failure.kind, "failed")
        return (status, f"{trial.failure.kind}: {trial.failure.message}")
    if trial.fingerprint == control.fingerprint:
        return ("inert", "compiles to the control's program, and a guard round saw no difference")
    if trial.fingerprint in programs:
        return ("inert", f"compiles to the same program as {programs[trial.fingerprint]!r}")
    if trial.estimate is not None and trial.estimate.high < -_HOPELESS:
        return ("slower", f"slower alone by more than {100 * _HOPELESS:.0f} %")
    return None
