"""Events of a small made-up run, one of every kind, for the tests of the store.

``python tests/store/store_samples.py`` writes them, and a database made from them, as the assets of the current format
versions. An asset of a version that was released is never written again.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from tuner.knobs.config import DEFAULT, Config
from tuner.knobs.knob import Knob
from tuner.machine.environment import Environment
from tuner.measure.types import Estimate, Verdict
from tuner.profile.guided import ProfileFacts
from tuner.profile.types import Breakdown, Finding, OpRow, Roofline, StepProfile
from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import Block, CacheModule, Compiled, LeafStats, Loaded, NumericsReply, Sketch
from tuner.store import events as ev
from tuner.store.lines import encode
from tuner.store.neighbour import Neighbour
from tuner.store.records import BaselineRecord, ConfirmRecord, Finalist, ProbeRecord, SealRecord

ASSETS = Path(__file__).parent / "assets"

FAST = Config.of({"xla_cpu_fast_math": "true"})
EMPTY = Config.of({"xla_disable_passes": ""})
ENVIRONMENT = Environment(identity={"platform": "cpu", "jax": "0.10.2", "cpu": "Made Up 9000"}, context={"cores": "2"})
PROGRAM = "5f" * 8
SKETCH = Sketch(operations={"add": 3, "dot_general": 1}, mesh={"data": 1}, input_bytes=1 << 20)
UNKNOWN = Estimate(gain=0.01, se=float("inf"), low=float("-inf"), high=float("inf"), n=1)
GUIDED = ProfileFacts(
    entries=9, foreign=1, operations=10, covered=8, collectives=2, collectives_covered=2, traces=3, spread=0.1
)
CRASH = Failure(kind=FailureClass.CRASH, phase="compile", message="Check failed: n > 0", signal="SIGABRT")
BROKEN_PIPE = Failure(kind=FailureClass.PROTOCOL, phase="round", message="the pipe was closed")


def estimate(gain: float, *, se: float = 0.001) -> Estimate:
    return Estimate(gain=gain, se=se, low=gain - 2 * se, high=gain + 2 * se, n=12)


def started(run: str = "nbody-3f9a1c") -> ev.RunStarted:
    return ev.RunStarted(
        run=run,
        workload="nbody.py",
        command=("tune", "nbody.py"),
        identity={"workload": "ab12", "name": "nbody"},
        options={"min_gain": "0.005"},
        inherited={"XLA_FLAGS": ""},
        tuner="0.1.0",
    )


def probed() -> ev.StageFinished:
    def knob(name: str, values: tuple[str, ...]) -> Knob:
        return Knob(
            name=name,
            carrier="xla_flag",
            type="string",
            values=values,
            lane="option",
            acts_on="codegen",
            why="made up",
            source="tests",
        )

    knobs = (knob("xla_cpu_fast_math", ("unset", "true", "false")), knob("xla_disable_passes", ("", "all")))
    record = ProbeRecord(
        environment=ENVIRONMENT,
        offered=("xla_cpu_fast_math", "xla_disable_passes"),
        live=("xla_cpu_fast_math", "xla_disable_passes"),
        knobs=knobs,
        left=(),
        option_types={"xla_cpu_fast_math": "bool"},
        notices=(),
    )
    return ev.StageFinished(stage="probe", seconds=1.5, record=record)


def compiled(program: str = PROGRAM, sketch: Sketch | None = SKETCH) -> ev.CandidateCompiled:
    made = Compiled(
        id="c1",
        program=program,
        code="cc",
        code_covers="hlo+codegen",
        lower_s=0.1,
        compile_s=0.4,
        peak_bytes=None,
        sketch=sketch,
    )
    return ev.CandidateCompiled(session="home", config=DEFAULT, compiled=made, fingerprint="cc")


def baselined(program: str = PROGRAM) -> ev.StageFinished:
    record = BaselineRecord(
        program=program,
        control_ms=12.5,
        steps_per_block=16,
        steps_discarded=2,
        noise=0.01,
        drift=0.002,
        resolution=0.004,
        start_s=1.1,
        compile_s=0.4,
        pair_s=9.0,
        reserve_s=20.0,
        peak_bytes=None,
        tolerances=(),
        numerics_steps=4,
        carried=("0 <- 0",),
        skipped=(),
    )
    return ev.StageFinished(stage="baseline", seconds=3.0, record=record)


def trial(
    number: int,
    config: Config = FAST,
    value: float | None = -0.05,
    *,
    failure: Failure | None = None,
    found: Estimate | None = None,
) -> ev.TrialFinished:
    return ev.TrialFinished(
        number=number,
        stage="screen",
        session="home",
        config=config,
        value=value,
        estimate=found or (None if value is None else estimate(-value)),
        fingerprint="f" * 8,
        failure=failure,
        label="fast math" if config == FAST else "",
    )


def confirmed(config: Config = FAST, verdict: Verdict = Verdict.FASTER, gain: float = 0.05) -> ev.StageFinished:
    finalist = Finalist(
        config=config,
        estimate=estimate(gain),
        verdict=verdict,
        log_ratios=(-gain, -gain),
        best_ms=11.9,
        control_ms=12.5,
    )
    record = ConfirmRecord(
        finalists=(finalist,),
        chosen=config if verdict is Verdict.FASTER else DEFAULT,
        verdict=verdict,
        estimate=finalist.estimate,
        control_ms=12.5,
        best_ms=11.9,
        pairs=6,
        alive_together=True,
    )
    return ev.StageFinished(stage="confirm", seconds=60.0, record=record)


def sealed(number: int = 1) -> ev.StageFinished:
    record = SealRecord(
        bundle=f"/made/up/bundle/{number:04d}",
        environment={"XLA_FLAGS": "--xla_cpu_fast_math=true"},
        cache_requests=2,
        cache_hits=2,
        first_step_cold_s=0.5,
        first_step_warm_s=0.1,
        notices=(),
        number=number,
        modules=(CacheModule(module="jit_step", key="jit_step-ab12", hit=True, fields={"computation": "0f"}),),
    )
    return ev.StageFinished(stage="seal", seconds=3.0, record=record)


def loaded() -> Loaded:
    return Loaded(
        source="build",
        step_name="step",
        platform="cpu",
        device_kind="cpu",
        device_count=1,
        process_count=1,
        versions={"python": "3.11.7", "jax": "0.10.2", "jaxlib": "0.10.2", "numpy": "2.0.0", "zstandard": "no"},
        devices=("cpu",),
        xla_flags="",
        xla_flags_after="",
        environ_changed={"TF_CPP_MIN_LOG_LEVEL": None},
        knobs_declared={},
        carried=("0 <- 0",),
        inputs=("0",),
        input_bytes=1 << 20,
        device_memory_bytes=None,
        has_check=False,
        work=None,
        import_s=0.5,
        init_s=0.1,
        build_s=0.1,
    )


def profiled() -> StepProfile:
    row = OpRow(name="dot.1", category="matrix multiply", calls=2.0, self_ms=9.0, total_ms=9.0, share=0.72)
    breakdown = Breakdown(
        platform="cpu",
        steps=3,
        devices=1,
        step_ms=12.5,
        traced_ms=12.6,
        parts={"matrix multiply": 9.0, "host gaps": 3.5},
        busy_ms=9.0,
        ops=(row,),
    )
    return StepProfile(
        breakdown=breakdown,
        roofline=Roofline(flops=1e9, bytes=1e6),
        bound="compute",
        evidence="72 % in products",
        findings=(Finding(kind="tiny", text="too little work", where="step.py:7"),),
        files={"trace": "profiles/default/as-run/plugins/x.xplane.pb"},
    )


def whole_run() -> list[ev.AnyEvent]:
    """One event of every kind, with awkward values."""
    near = Neighbour(
        run="nbody-0000aa",
        workload="nbody.py",
        program="a" * 32,
        distance=0.05,
        apart={"size": 0.05},
        identity=ENVIRONMENT.identity,
        configs=(FAST,),
    )
    leaf = LeafStats(path="0", dtype="float32", size=9, steps=1, l2=float("nan"), slope=0.0, masks_equal=False)
    block = Block(id="c1", steps=16, seconds=0.2, first_s=0.01)
    return [
        started(),
        ev.SessionStarted(
            session="home", role="home", config=DEFAULT, env={"A": "null", "B": None}, loaded=loaded(), start_s=2.0
        ),
        probed(),
        compiled(),
        baselined(),
        ev.NumericsCompared(
            session="home", config=FAST, purpose="gate", reply=NumericsReply(leaves=(leaf,)), passed=True
        ),
        ev.RoundTimed(session="home", stage="screen", control="c0", blocks=(block,), conditions={"load_1m": 0.5}),
        ev.OffsetMeasured(session="home", config=EMPTY, estimate=UNKNOWN),
        trial(0),
        trial(1, EMPTY, None, failure=CRASH),
        trial(2, EMPTY, None, failure=BROKEN_PIPE),
        trial(3, FAST.set("xla_disable_passes", "elsewhere"), 0.01, found=UNKNOWN),
        ev.PairsPlanned(looks=(6, 8), turns=10, round_sd=0.01, process_sd=0.001, resolution=0.004),
        ev.PairTimed(
            index=0,
            config=FAST,
            log_ratio=-0.05,
            control_ms=12.5,
            finalist_ms=11.9,
            fingerprint="cc",
            alive_together=True,
        ),
        ev.NcclRead(
            session="home",
            config=DEFAULT,
            channels=16,
            ran={"AllReduce 1024": "RING LL"},
            asked=("requested NCCL_PROTO=Simple, ran LL for AllReduce of 1024 bytes",),
        ),
        ev.PreciseReference(session="home", control=None, failure=CRASH),
        ev.EffectHidden(session="home", config=FAST),
        ev.Profiled(session="home", config=FAST, profile=None, failure=CRASH),
        ev.Profiled(session="home", config=DEFAULT, profile=profiled()),
        ev.WarmStart(neighbours=(near,)),
        ev.ProfileJudged(session="home", config=FAST, runs=3, percentile=90, facts=GUIDED, said=True, changed=True),
        ev.Notice(text="a line\nand “another”"),
        ev.Interruption(stage="search"),
        ev.Resumed(),
        confirmed(),
        sealed(),
        ev.SessionClosed(session="home", failure=BROKEN_PIPE),
        ev.RunFinished(exit_code=0),
    ]


def stored(found: list[ev.AnyEvent] | None = None) -> list[ev.AnyEvent]:
    """`found` (default: the whole run) with numbers, and with times a second apart."""
    events = whole_run() if found is None else found
    return [msgspec.structs.replace(e, seq=i, time=float(10**9 + i)) for i, e in enumerate(events)]


def write_log(path: Path, found: list[ev.AnyEvent] | None = None) -> list[ev.AnyEvent]:
    """Make the log file `path` of these events, as `EventLog` would; returns them as stored."""
    path.parent.mkdir(parents=True, exist_ok=True)
    events = stored(found)
    path.write_bytes(b"".join(map(encode, events)))
    return events


def _write_assets(folder: Path) -> None:
    import sqlite3

    from tuner.store.index import Index
    from tuner.store.tables import SCHEMA

    folder.mkdir(exist_ok=True)
    log, database = folder / f"events-v{ev.VERSION}.jsonl", folder / f"index-v{SCHEMA}.db"
    for path in (log, database):
        path.unlink(missing_ok=True)
    index = Index(f"sqlite:///{database}")
    if text := index.record(write_log(log)):
        raise SystemExit(text)
    index.close()
    connection = sqlite3.connect(database)  # one small file: nothing left in the write-ahead log
    connection.execute("UPDATE tuner_runs SET host = 'made-up'")
    connection.commit()
    connection.execute("PRAGMA journal_mode=DELETE")
    connection.execute("VACUUM")
    connection.close()


if __name__ == "__main__":
    _write_assets(Path(sys.argv[1]) if len(sys.argv) > 1 else ASSETS)
