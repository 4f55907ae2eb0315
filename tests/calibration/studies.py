"""Studies: whole runs of the tuner on a machine with a fitted model's noise, where the truth is known.

A study is one `tune` over the made-up space with default options and the default budget. Rows of studies are kept in
`rows/`, one JSON line each: what is there is not run again.
"""

from __future__ import annotations

import hashlib
import math
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from unittest import mock

import msgspec
from fit import Fitted
from made_up import FAST, machine, space
from scipy.special import betaincinv

import tuner
from tuner.knobs import DEFAULT, Config, SearchSpace, environment, load_spaces
from tuner.machine import Host
from tuner.measure import Estimate, Verdict, estimate
from tuner.measure.across import relative
from tuner.pipeline.options import RunOptions
from tuner.pipeline.run import tune
from tuner.protocol.messages import Arm, Block, Variant
from tuner.session import FakeMachine, Launch
from tuner.store.events import AnyEvent, StageFinished, TrialFinished
from tuner.store.records import ConfirmRecord

__all__ = ["Design", "Interval", "Row", "Share", "Summary", "agree", "run_studies", "run_study", "share", "summary"]

ROWS = Path(__file__).parent / "rows"

# The later re-measurement: rounds of one fresh process each for the default and the config, one at a time.
_AGAIN_ROUNDS = 8
_AGAIN_BLOCKS = 10
_BLOCK_S = {"cpu": 0.05, "gpu": 0.2}
_HANDLE = "step"
_FIELDS = cache(msgspec.structs.fields)  # asked for every knob of every study


class Design(msgspec.Struct, frozen=True, kw_only=True):
    """`gain`: what `FAST` gains in truth (log time), 0 for A/A. `budget_s`: of each run, in the machine's time."""

    model: Fitted
    gain: float = 0.0
    budget_s: float = 600.0

    @property
    def name(self) -> str:
        return f"{self.model.name}.gain-{100 * self.gain:g}"

    @property
    def digest(self) -> str:
        """What a row holds for: the noise, the truth, the space."""
        told = (self.model.noise, self.model.step_ms, self.model.start_s, self.model.compile_s, self.model.cores)
        text = msgspec.json.encode((*told, self.model.platform, self.gain, self.budget_s, space(0)))
        return hashlib.sha256(text).hexdigest()[:8]


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """An interval that a run printed for a config, and the true gain."""

    settings: dict[str, str]
    truth: float
    gain: float
    low: float
    high: float
    pairs: int

    @property
    def holds(self) -> bool:
        return self.low <= self.truth <= self.high


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What one study found. `intervals`: of all finalists, that of the headline first. `again`: gain of that one's
    config in a later, independent re-measurement; `predicted`: it differs from the printed gain by no more than both
    intervals together allow. `trials`, `trials_held`: single-session intervals, and how many of them held the truth.
    `error`: what stopped the run, which nothing should."""

    seed: int
    code: str
    verdict: str = ""
    chosen: dict[str, str] = {}
    intervals: list[Interval] = []
    again: float | None = None
    predicted: bool = False
    trials: int = 0
    trials_held: int = 0
    seconds: float = 0.0
    error: str = ""


def run_study(design: Design, seed: int) -> Row:
    """One study. Everything random in it follows from `seed`."""
    made = machine(design.model, gain=design.gain, seed=seed)
    with tempfile.TemporaryDirectory(prefix="study-") as name, _light(Path(name), design.model):
        folder = Path(name)
        (folder / "workload.py").write_text("def build():\n    raise RuntimeError('made up: never executed')\n")
        (folder / "made_up.toml").write_text(space(seed))
        options = RunOptions(
            workload=folder / "workload.py",
            spaces=(str(folder / "made_up.toml"),),
            platform=design.model.platform,
            store=str(folder / "store"),
            budget_s=design.budget_s,
            command=("tune", "workload.py"),
            seed=seed,
        )
        loaded = load_spaces(options.spaces)
        try:
            with mock.patch("tuner.pipeline.opening.load_spaces", return_value=loaded):
                events = tune(options, factory=made.factory, clock=made.now).events
        except Exception:
            return Row(seed=seed, code=code_digest(), error=traceback.format_exc(limit=-3))
        return _row(made, loaded, events, seed)


def _row(made: FakeMachine, knobs: SearchSpace, events: Sequence[AnyEvent], seed: int) -> Row:
    confirmed = next(e.record for e in events if isinstance(e, StageFinished) and isinstance(e.record, ConfirmRecord))
    finalists = [f for f in confirmed.finalists if math.isfinite(f.estimate.se)]
    # The headline is about what was chosen, else about the first finalist.
    finalists.sort(key=lambda f: f.config != confirmed.chosen)
    intervals = [
        Interval(
            settings=f.config.as_dict(),
            truth=_truth(made, f.config),
            gain=f.estimate.gain,
            low=f.estimate.low,
            high=f.estimate.high,
            pairs=f.estimate.n,
        )
        for f in finalists
    ]
    trials = [
        e
        for e in events
        if isinstance(e, TrialFinished) and e.estimate is not None and e.shared_with < 0 and e.config != DEFAULT
    ]
    held = [t for t in trials if t.estimate and t.estimate.low <= _truth(made, t.config) <= t.estimate.high]
    took_s = made.now()  # the re-measurement comes after the run
    later = _again(made, knobs, finalists[0].config) if finalists else None
    return Row(
        seed=seed,
        code=code_digest(),
        verdict=confirmed.verdict.value,
        chosen=confirmed.chosen.as_dict(),
        intervals=intervals,
        again=later.gain if later else None,
        predicted=later is not None and agree(finalists[0].estimate, later),
        trials=len(trials),
        trials_held=len(held),
        seconds=round(took_s, 1),
    )


def _truth(made: FakeMachine, config: Config) -> float:
    return -made.log_ratio(config.as_dict())


def agree(printed: Estimate, later: Estimate) -> bool:
    """True if the two differ by no more than their intervals together allow: a later measurement has an error too, so
    that `printed` alone does not predict it."""
    apart = relative(printed, later)
    return apart.low <= 0 <= apart.high


def _again(made: FakeMachine, knobs: SearchSpace, config: Config) -> Estimate:
    """Gain of `config` over rounds of one fresh process for it and one for the default, one at a time, as somebody
    would measure it who checks the result with a script of their own."""
    gains = []
    for number in range(_AGAIN_ROUNDS):
        order = [DEFAULT, config] if number % 2 else [config, DEFAULT]
        levels = {c: math.log(_alone(made, knobs, c)) for c in order}
        gains.append(levels[DEFAULT] - levels[config])
    return estimate(gains, autocorrelation=0.0)


def _alone(made: FakeMachine, knobs: SearchSpace, config: Config) -> float:
    """Median seconds a step over the blocks of one fresh process."""
    launch = Launch(
        name="again",
        role="confirm",
        workload=Path("workload.py"),
        log=Path("again.log"),
        python="python",
        env=environment(config, knobs, {}),
        config=config,
    )
    session = made.factory(launch)
    session.start()
    session.compile([Variant(id=_HANDLE)])
    steps = max(1, round(_BLOCK_S[made.platform] / (made.step_ms / 1e3)))
    blocks = [session.round([Arm(id=_HANDLE, steps=steps)])[0] for _ in range(_AGAIN_BLOCKS)]
    session.close()
    return median(b.seconds / b.steps for b in blocks if isinstance(b, Block))


@contextmanager
def _light(folder: Path, model: Fitted) -> Iterator[None]:
    """A run without what costs time and decides nothing: no fsync, no database, no report, a lock of its own, the
    recording's number of cores whatever this machine has."""
    host = Host(cpu="made up", cores=model.cores, memory_bytes=1 << 36, kernel="made up")
    with ExitStack() as stack:
        for target, value in (
            ("tempfile.tempdir", str(folder)),
            ("os.fsync", lambda fd: None),
            ("tuner.store.study.StudyMirror.open", lambda *_, **__: None),
            ("tuner.store.study.StudyMirror.record", lambda *_, **__: ""),
            ("tuner.store.index.Index.open", lambda *_, **__: None),
            ("tuner.store.index.Index.record", lambda *_, **__: ""),
            ("tuner.store.index.Index.best_for", lambda *_, **__: []),
            ("tuner.store.index.Index.pair_spread", lambda *_, **__: None),
            ("tuner.pipeline.report.write_results", lambda *_: None),
            ("tuner.pipeline.report.write_reports", lambda *_: None),
            ("tuner.pipeline.opening.read_host", lambda: host),
            ("msgspec.structs.fields", _FIELDS),
        ):
            stack.enter_context(mock.patch(target, value))
        yield


@cache
def code_digest() -> str:
    """A hash of the tuner's sources: which code a row was made by."""
    sources = sorted(Path(tuner.__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"".join(p.read_bytes() for p in sources)).hexdigest()[:8]


def run_studies(design: Design, studies: int, *, workers: int = 1, rows: Path = ROWS, first_seed: int = 0) -> list[Row]:
    """The rows of so many studies, seeds counted from `first_seed`; those that `rows` has are taken from there."""
    rows.mkdir(parents=True, exist_ok=True)
    path = rows / f"{design.name}.{design.digest}.jsonl"
    lines = path.read_bytes().splitlines() if path.exists() else []
    known = {row.seed: row for row in _readable(lines)}
    seeds = range(first_seed, first_seed + studies)
    missing = [s for s in seeds if s not in known]
    with path.open("ab") as file:
        for row in _run(design, missing, workers):
            file.write(msgspec.json.encode(row) + b"\n")
            file.flush()
            known[row.seed] = row
    return [known[s] for s in seeds]


def _readable(lines: Iterable[bytes]) -> Iterator[Row]:
    """The rows of whole lines: an interrupted run may have left half a one, which is run again."""
    for line in lines:
        try:
            yield msgspec.json.decode(line, type=Row)
        except msgspec.DecodeError:
            continue


def _run(design: Design, seeds: Sequence[int], workers: int) -> Iterator[Row]:
    if workers == 1:
        for seed in seeds:
            yield run_study(design, seed)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(run_study, design, seed) for seed in seeds]):
            yield future.result()


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A count and the 95 % interval of the chance behind it (Clopper & Pearson 1934)."""

    count: int
    of: int
    low: float
    high: float

    def __str__(self) -> str:
        if not self.of:
            return "none"
        percent = (100 * x for x in (self.count / self.of, self.low, self.high))
        return "{}/{} = {:.2f} % ({:.2f} to {:.2f})".format(self.count, self.of, *percent)


def share(hits: Iterable[bool]) -> Share:
    values = list(hits)
    k, n = sum(values), len(values)
    low = float(betaincinv(k, n - k + 1, 0.025)) if k else 0.0
    high = float(betaincinv(k + 1, n - k, 0.975)) if k < n else 1.0
    return Share(count=k, of=n, low=round(low, 5), high=round(high, 5))


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What studies of one design found.

    `false_winners`: something was called faster that is not in truth. `found`: the truly faster knob is in what is
    emitted; `alone`: it is all that is emitted. `covered`: headline intervals that hold the true gain; `covered_all`:
    runs in which those of all finalists do. `predicted`: headlines that a later re-measurement agrees with; `gap`: the
    median distance of their gains, as a fraction. `half_width`: median half-width of the headline intervals, as a
    fraction; `median_gain`: their median centre. `trials`: single-session intervals that hold the truth, which they
    don't promise: they are about one process. `errors`: runs that ended in an exception.
    """

    design: str
    digest: str
    gain: float
    budget_s: float
    studies: int
    code: dict[str, int]
    verdicts: dict[str, int]
    false_winners: Share
    found: Share
    alone: Share
    covered: Share
    covered_all: Share
    predicted: Share
    gap: float | None
    trials: Share
    half_width: float | None
    median_gain: float | None
    pairs: dict[str, int]
    over_budget: int
    errors: int


def summary(design: Design, rows: Sequence[Row]) -> Summary:
    """Rows in one. A/A has nothing to find: `found` and `alone` are of no studies there."""
    done = [r for r in rows if not r.error]
    headlines = [r.intervals[0] for r in done if r.intervals]
    able = done if design.gain else []
    gaps = [abs(r.again - i.gain) for r in done for i in r.intervals[:1] if r.again is not None]
    return Summary(
        design=design.name,
        digest=design.digest,
        gain=design.gain,
        budget_s=design.budget_s,
        studies=len(rows),
        code=dict(Counter(r.code for r in rows)),
        verdicts=dict(Counter(r.verdict for r in done)),
        false_winners=share(_falsely_won(r) for r in done),
        found=share(FAST in r.chosen for r in able),
        alone=share(list(r.chosen) == [FAST] for r in able),
        covered=share(i.holds for i in headlines),
        covered_all=share(all(i.holds for i in r.intervals) for r in done if r.intervals),
        predicted=share(r.predicted for r in done if r.again is not None),
        gap=round(median(gaps), 6) if gaps else None,
        trials=share(hit for r in done for hit in [True] * r.trials_held + [False] * (r.trials - r.trials_held)),
        half_width=round(median((i.high - i.low) / 2 for i in headlines), 6) if headlines else None,
        median_gain=round(median(i.gain for i in headlines), 6) if headlines else None,
        pairs={str(n): k for n, k in sorted(Counter(i.pairs for i in headlines).items())},
        over_budget=sum(r.seconds > 1.1 * design.budget_s for r in done),
        errors=len(rows) - len(done),
    )


def _falsely_won(row: Row) -> bool:
    """Something is emitted as faster, and is not."""
    return row.verdict == Verdict.FASTER and row.intervals[0].truth <= 0
