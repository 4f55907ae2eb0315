"""Event lists as runs leave them: ended `faster`, `same` or `unclear`, interrupted, or with everything failed."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from synthetic_knobs import KNOBS, LEFT_AT_PROBE, MALLOC, MATH, PASSES, SPLIT
from synthetic_log import Log, estimate, failing

from tuner.knobs.config import DEFAULT, Config
from tuner.knobs.status import KnobStatus
from tuner.machine.environment import Environment
from tuner.measure.types import Levels, Verdict
from tuner.protocol.failure import FailureClass
from tuner.store.events import (
    AnyEvent,
    Interruption,
    Notice,
    OffsetMeasured,
    PairTimed,
    RunFinished,
    RunStarted,
    SessionClosed,
)
from tuner.store.records import (
    BaselineRecord,
    ConfirmRecord,
    Draws,
    Effect,
    Finalist,
    Measured,
    MinimiseRecord,
    PresetsRecord,
    ProbeRecord,
    ReportRecord,
    ScreenRecord,
    SealRecord,
    SearchRecord,
    Tolerance,
)

__all__ = [
    "FILES",
    "SCENARIOS",
    "all_failed",
    "estimate",
    "failing",
    "faster",
    "interrupted",
    "same",
    "unclear",
    "unstable",
]

RUN = "nbody-3f9ac2d17b04"
FOLDER = f".tuner/runs/{RUN}"
FILES = {
    "env": f"{FOLDER}/bundle/best.env",
    "shell": f"{FOLDER}/bundle/best.sh",
    "json": f"{FOLDER}/bundle/best.json",
    "events": f"{FOLDER}/events.jsonl",
    "table": f"{FOLDER}/results.csv",
    "bundle": f"{FOLDER}/bundle",
}


def _opened() -> Log:
    log = Log()
    log.add(
        RunStarted(
            run=RUN,
            workload="workloads/nbody.py",
            command=("tune", "workloads/nbody.py", "--budget", "180"),
            identity={"workload": "c0ffee", "environment": "7e57ab1e"},
            options={"min_gain": "0.005", "seed": "0", "budget_s": "180"},
            inherited={"NCCL_MAX_CTAS": "8"},
            tuner="0.1.0",
        )
    )
    log.session("home")
    offered = (*(k.name for k in KNOBS), *(s.name for s in LEFT_AT_PROBE if s.status != "renamed"))
    log.finish(
        ProbeRecord(
            environment=Environment(
                identity={
                    "platform": "cpu",
                    "device_kind": "cpu",
                    "device_count": "1",
                    "process_count": "1",
                    "jax": "0.10.2",
                    "jaxlib": "0.10.2",
                    "cpu": "Example CPU 9000",
                    "cores": "2",
                },
                context={"python": "3.11.9", "kernel": "6.8.0"},
            ),
            offered=offered,
            live=tuple(k.name for k in KNOBS),
            knobs=KNOBS,
            left=LEFT_AT_PROBE,
            option_types={MATH: "bool", SPLIT: "int32", PASSES: "string"},
            notices=("only 2 cores are usable here",),
        )
    )
    return log


def _baseline(log: Log) -> None:
    log.compiled("home", DEFAULT, "d" * 16)
    log.round("home", "baseline", {"control": 16.2})
    log.add(Notice(text="the step holds \x1b[31mno\x1b[0m collectives: knobs that act on them are left out"))
    log.finish(
        BaselineRecord(
            program="b" * 16,
            control_ms=16.2,
            steps_per_block=12,
            steps_discarded=3,
            step_noise=0.031,
            process_noise=0.001,
            noise=0.011,
            drift=0.004,
            resolution=0.006,
            start_s=2.0,
            compile_s=0.65,
            pair_s=9.0,
            reserve_s=12.0,
            peak_bytes=1_610_612_736,
            tolerances=(
                Tolerance(path="[0].x", steps=1, l2=3e-7, slope=6e-8),
                Tolerance(path="[0].v", steps=8, l2=1.2e-5, slope=1.2e-6),
            ),
            numerics_steps=8,
            carried=("state.x <- [0].x",),
            skipped=("profile",),
        )
    )


def _presets(log: Log, gain: float) -> None:
    default = log.trial("presets", DEFAULT, estimate(1.0, 0.001), label="default")
    o1 = log.trial("presets", Config.of({SPLIT: "8"}), estimate(gain, 0.01), label="O1")
    log.finish(PresetsRecord(measured=(default, o1)))


def _screen(log: Log, gain: float, half: float) -> None:
    """Flips: one that may help, one that shares its twin's samples, one inert, one wrong, one that ends its process."""
    flips = [
        log.trial("screen", Config.of({MATH: "false"}), estimate(gain, half)),
        log.trial("screen", Config.of({MATH: "true"}), estimate(1.0, 0.001), shared_with=0),
        log.trial("screen", Config.of({SPLIT: "1"}), estimate(0.981, 0.009)),
    ]
    log.gate("home", Config.of({PASSES: ""}), slope=3e-3, passed=False)
    log.trial(
        "screen",
        Config.of({PASSES: ""}),
        failing(FailureClass.WRONG_RESULT, "[0].v after 8 steps: slope 0.003 is beyond 1.2e-06", phase="numerics"),
    )
    log.trial("screen", Config.of({PASSES: "fusion"}), FATAL)
    environment = Config.of({MALLOC: "1"})
    log.session("e-malloc", role="search", config=environment)
    log.add(OffsetMeasured(session="e-malloc", config=environment, estimate=estimate(1.006, 0.012)))
    flips.append(log.trial("screen", environment, estimate(1.006, 0.012), session="e-malloc"))
    log.add(SessionClosed(session="e-malloc"))
    log.finish(
        ScreenRecord(
            flips=tuple(flips),
            live={MATH: ("unset", "false"), SPLIT: ("unset", "8"), MALLOC: ("unset", "1")},
            left=(
                KnobStatus(name=PASSES, status="wrong", reason="[0].v differs", values=("",)),
                KnobStatus(name=PASSES, status="failed", reason="ends the process", values=("fusion",)),
                KnobStatus(name=SPLIT, status="inert", reason="compiles to the control's program", values=("1",)),
            ),
        )
    )


FATAL = failing(
    FailureClass.FATAL,
    "F0000 00:00:00 hlo_pass_pipeline.cc:88] Unknown pass \x1b[1mfusion\x1b[0m",
    exit_code=1,
    log_head=("importing jax", "\x1b[33mWARNING\x1b[0m: all log messages before absl::InitializeLog()"),
    log_tail=("*** Check failure stack trace: ***", "\tframe 1"),
    command="XLA_FLAGS='--xla_disable_hlo_passes=fusion' python -m tuner.worker workloads/nbody.py",
)


def _search(log: Log, best: Config, gain: float, half: float) -> Measured:
    log.trial("search", Config.of({MATH: "false", MALLOC: "1"}), estimate(gain * 0.99, half))
    found = log.trial("search", best, estimate(gain, half))
    log.trial("search", Config.of({MALLOC: "1", SPLIT: "1"}), estimate(gain * 0.97, half), shared_with=4)
    log.finish(SearchRecord(best=(found,), trials=3, enumerated=False))
    return found


def _confirmed(
    log: Log, config: Config, verdict: Verdict, speedup: float, half: float, pairs: int, unstable: str = ""
) -> None:
    control, ms = 16.2, 16.2 / speedup
    ratios = tuple(-math.log(speedup) + half / 4 * (-1) ** i for i in range(pairs))
    for index, ratio in enumerate(ratios):
        for name, e in ((f"confirm-{index}-default", DEFAULT), (f"confirm-{index}-{config.key[:8]}", config)):
            log.session(name, role="confirm", config=e, start_s=1.8)
            log.compiled(name, e, f"{e.key[:12]}0000")
            log.round(name, "confirm", {"control": control if e == DEFAULT else ms})
        log.add(
            PairTimed(
                index=index,
                config=config,
                log_ratio=ratio,
                control_ms=control,
                finalist_ms=ms,
                fingerprint=f"{config.key[:12]}0000",
                alive_together=True,
            )
        )
    found = estimate(speedup, half, n=pairs)
    log.finish(
        ConfirmRecord(
            finalists=(
                Finalist(
                    config=config,
                    estimate=found,
                    verdict=verdict,
                    log_ratios=ratios,
                    best_ms=ms,
                    control_ms=control,
                ),
            ),
            chosen=config if verdict is Verdict.FASTER else DEFAULT,
            verdict=verdict,
            estimate=found,
            control_ms=control,
            best_ms=ms if verdict is Verdict.FASTER else control,
            pairs=pairs,
            alive_together=True,
            noise=Levels(round=0.013, process=0.009, pair=0.011, pairs=pairs),
            turns=10,
            resolution=0.011,
            draws=(
                Draws(config=DEFAULT, ms=(control,) * pairs, programs=1, spread=0.0),
                Draws(config=config, ms=tuple(ms * (1 + i / 500) for i in range(pairs)), programs=2, spread=0.003),
            ),
            unstable=unstable,
            redone=1,
            disturbed=pairs // 2 if unstable else 0,
        )
    )


def _minimised(log: Log, winner: Measured, reduced: Config, effects: tuple[Effect, ...]) -> None:
    dropped = dict.fromkeys(winner.config.names - reduced.names, "without it the program compiles to the same code")
    small = log.trial("minimise", reduced, winner.estimate)
    log.finish(MinimiseRecord(winner=winner, reduced=small, runner_up=None, dropped=dropped, effects=effects))


def _ended(log: Log, exit_code: int = 0) -> list[AnyEvent]:
    log.add(SessionClosed(session="home"))
    log.add(RunFinished(exit_code=exit_code))
    return log.events


def _made_once(make: Callable[[], list[AnyEvent]]) -> Callable[[], list[AnyEvent]]:
    """Events are frozen and hundreds of tests want the same: each gets a list of its own of one run's."""
    events = functools.cache(lambda: tuple(make()))
    return functools.wraps(make)(lambda: list(events()))


@_made_once
def faster() -> list[AnyEvent]:
    """1.43x from two settings; a third one of the winner's is dropped; sealed."""
    log = _opened()
    _baseline(log)
    _presets(log, 1.01)
    _screen(log, 1.41, 0.02)
    winner = _search(log, Config.of({MATH: "false", MALLOC: "1", SPLIT: "8"}), 1.44, 0.02)
    kept = Config.of({MATH: "false", MALLOC: "1"})
    effects = (
        Effect(name=MALLOC, value="1", estimate=estimate(1.012, 0.006)),
        Effect(name=MATH, value="false", estimate=estimate(1.41, 0.03)),
    )
    _minimised(log, winner, kept, effects)
    _confirmed(log, kept, Verdict.FASTER, 1.43, 0.03, 6)
    log.finish(
        SealRecord(
            bundle=FILES["bundle"],
            environment={"XLA_FLAGS": f"--{MATH}=false", MALLOC: "1"},
            cache_requests=3,
            cache_hits=3,
            first_step_cold_s=2.4,
            first_step_warm_s=0.9,
            notices=("the bundle holds for jaxlib 0.10.2 alone",),
            sealed=estimate(1.42, 0.02, n=4),
            sealed_ms=11.4,
            sealed_pairs=4,
            draws_ms=(11.5, 11.4, 11.6),
        )
    )
    log.finish(ReportRecord(files=FILES))
    return _ended(log)


def _without_gain(verdict: Verdict, speedup: float, half: float, pairs: int, unstable: str = "") -> list[AnyEvent]:
    log = _opened()
    _baseline(log)
    _presets(log, 1.001)
    _screen(log, 1.004, 0.006)
    best = Config.of({MATH: "false"})
    winner = _search(log, best, 1.007, 0.004)
    _minimised(log, winner, best, (Effect(name=MATH, value="false", estimate=estimate(1.007, 0.004)),))
    _confirmed(log, best, verdict, speedup, half, pairs, unstable)
    log.finish(ReportRecord(files={name: FILES[name] for name in ("events", "table")}))
    return _ended(log)


@_made_once
def same() -> list[AnyEvent]:
    """What looked best makes no difference in fresh processes: the defaults stay."""
    return _without_gain(Verdict.SAME, 1.001, 0.003, 6)


@_made_once
def unclear() -> list[AnyEvent]:
    """After twelve pairs the interval still spans zero and more than the margin."""
    return _without_gain(Verdict.UNCLEAR, 1.009, 0.02, 12)


@_made_once
def unstable() -> list[AnyEvent]:
    """The default's own time jumps from pair to pair, and other processes are at work."""
    seen = (
        "the default's own time went from 15.8 to 22.4 ms between pairs of processes; 3 of 6 pairs stayed disturbed, "
        "for instance: other processes kept 1.4 of 2 cores busy (9 of 10 turns)"
    )
    return _without_gain(Verdict.UNSTABLE, 1.03, 0.02, 6, seen)


@_made_once
def interrupted() -> list[AnyEvent]:
    """Ctrl-C in the middle of the search."""
    log = _opened()
    _baseline(log)
    _presets(log, 1.01)
    _screen(log, 1.31, 0.04)
    log.trial("search", Config.of({MATH: "false", SPLIT: "8"}), estimate(1.33, 0.04))
    failure = failing(FailureClass.INTERRUPTED, "ended by the user", phase="round", signal="SIGKILL")
    log.add(SessionClosed(session="home", failure=failure), after_s=1.5)
    log.add(Interruption(stage="search"))
    return log.events


@_made_once
def all_failed() -> list[AnyEvent]:
    """Every candidate fails, in several ways; the defaults alone run."""
    log = _opened()
    _baseline(log)
    default = log.trial("presets", DEFAULT, estimate(1.0, 0.001), label="default")
    log.finish(PresetsRecord(measured=(default,)))
    log.trial("screen", Config.of({MATH: "false"}), FATAL)
    log.trial("screen", Config.of({MATH: "true"}), FATAL)
    for value in ("1", "8"):
        message = f"RESOURCE_EXHAUSTED: out of memory allocating {value}7179869184 bytes"
        failure = failing(FailureClass.OUT_OF_MEMORY, message, phase="round")
        log.trial("screen", Config.of({SPLIT: value}), failure)
    crash = failing(FailureClass.CRASH, "", phase="start", signal="SIGSEGV", exit_code=-11)
    log.trial("screen", Config.of({MALLOC: "1"}), crash, session="e-malloc")
    log.add(SessionClosed(session="e-malloc", failure=crash))
    left = tuple(KnobStatus(name=k.name, status="failed", reason="every value failed") for k in KNOBS)
    log.finish(ScreenRecord(flips=(), live={}, left=left))
    log.finish(SearchRecord(best=(), trials=0, enumerated=True))
    log.finish(MinimiseRecord(winner=None, reduced=None, runner_up=None, dropped={}, effects=()))
    log.finish(
        ConfirmRecord(
            finalists=(),
            chosen=DEFAULT,
            verdict=Verdict.UNCLEAR,
            estimate=None,
            control_ms=16.2,
            best_ms=16.2,
            pairs=0,
            alive_together=True,
        )
    )
    log.finish(ReportRecord(files={name: FILES[name] for name in ("events", "table")}))
    return _ended(log)


SCENARIOS = {f.__name__: f for f in (faster, same, unclear, unstable, interrupted, all_failed)}
