"""Fit a noise model to a recording: half of its pairs make the model, the other half must look like it.

    python tests/calibration/fit.py tests/calibration/recordings/nbody-cpu-jax0.10.2.json.gz

writes `models/nbody-cpu-jax0.10.2.json` and prints how the held-out half compares. Process effects come from the pair
log ratios by maximum likelihood; the rest by simulated moments: the parameters whose simulated recordings have the
statistics of `spread.py` that the recording has. With `--judge MODEL` nothing is fitted: that model, as it is, is held
against recordings that it has not seen.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray
from recorded import Recording, read
from spread import NAMES, SCALED, pair_log_ratios, simulated, statistics

from tuner.session.noise import NoiseModel

__all__ = ["MODELS", "RECORDINGS", "Checked", "Fitted", "check", "fit", "halves", "load", "process_part"]

MODELS = Path(__file__).parent / "models"
RECORDINGS = Path(__file__).parent / "recordings"

# Of what distinguishes processes, this share of the variance is given to the compile: recordings can't tell, and a
# confirmation doesn't care, since each of its processes compiles once. Candidates within a session do differ by it.
_COMPILE_SHARE = 0.5
# Two speeds are believed where the pairs are so much likelier under them.
_LIKELIER = 2.0
# Recordings simulated for one set of parameters, and generations of the search with so many sets for each parameter.
_REPLICATES = 8
_GENERATIONS = 35
_POPULATION = 7
# By how much a statistic may be off (a logarithm where it is above 0): about its sampling error in half a recording,
# less for what a confirmation measures by, the spread of a median over turns.
_UNITS = {
    "ratio_spread": 0.07,
    "ratio_wide": 0.15,
    "ratio_tail": 0.3,
    "unrest": 0.1,
    "ratio_lag1": 0.08,
    "level_spread": 0.1,
    "level_wide": 0.15,
    "level_lag1": 0.08,
    "level_lag5": 0.1,
    "skew": 0.15,
    "turns_spread": 0.05,
    "level_between": 0.3,
    "level_minute": 0.4,
}
_SMALLEST = 1e-6
# The search's parameters and where it looks for them: logarithms of spreads, rates and durations.
_BOUNDS = {
    "block_sd": (1e-5, 0.3),
    "machine_sd": (1e-5, 0.3),
    "machine_s": (0.05, 60.0),
    "drift_sd": (1e-5, 0.2),
    "stalls": (0.1, 300.0),
    "stall_s": (0.01, 3.0),
    "stall_size": (0.003, 3.0),
    "unrest": (0.01, 1.0),
}
_MOST_TAIL = 0.45
_MEMORY = (-0.3, 0.8)
_CHECK_RUNS = 400


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """A statistic of the fitted and of the held-out half, and the range in which the latter should lie (see `check`).
    None: the recording is too short for it."""

    fitted: float | None
    held_out: float | None
    low: float | None
    high: float | None


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """A noise model, the program it was seen on, and where it comes from."""

    name: str
    noise: NoiseModel
    platform: str
    cores: int
    step_ms: float
    compile_s: float
    start_s: float
    recording: str
    workload: str
    device: str
    machine: str
    jax: str
    note: str
    check: dict[str, Checked]


def load(name: str) -> Fitted:
    return msgspec.json.decode((MODELS / f"{name}.json").read_bytes(), type=Fitted)


def fit(recording: Recording, *, seed: int = 0) -> NoiseModel:
    """The model of `recording`, all of it."""
    from scipy.optimize import Bounds, differential_evolution  # others use the models alone, and this takes a while

    process = process_part(recording)
    wanted = statistics(recording)

    def loss(x: NDArray[np.float64]) -> float:
        return _distance(wanted, _typical(recording, _model(x, process), seed))

    ends = [*((math.log(low), math.log(high)) for low, high in _BOUNDS.values()), (0.0, _MOST_TAIL), _MEMORY]
    found = differential_evolution(
        loss,
        Bounds([low for low, _ in ends], [high for _, high in ends]),
        maxiter=_GENERATIONS,
        popsize=_POPULATION,
        rng=seed,
        polish=False,
        tol=0.0,
    )
    return _model(found.x, process)


def process_part(recording: Recording) -> NoiseModel:
    """What distinguishes processes: normal, or normal about two speeds where the pairs say so.

    The error of a pair's median, told by its even and odd turns, is taken out.
    """
    ratios = pair_log_ratios(recording)
    error = _median_variance(recording)
    spread = max(1e-5, float(np.sqrt(np.mean(ratios**2))))
    sds = np.geomspace(spread / 30, spread * 1.5, 60)
    best = max(((_likelihood(ratios, 0.0, s), 0.0, s) for s in sds), key=lambda c: c[0])
    modes = max((_likelihood(ratios, m, s), m, s) for m in np.geomspace(spread, 2.5 * spread, 30) for s in sds)
    if modes[0] > best[0] + _LIKELIER:
        best = modes
    _, mode, sd = best
    variance = max(0.0, sd**2 - error) / 2  # of one process; a ratio has two
    return NoiseModel(
        process_modes=float(mode),
        process_sd=float(math.sqrt((1 - _COMPILE_SHARE) * variance)),
        compile_sd=float(math.sqrt(_COMPILE_SHARE * variance)),
    )


def _likelihood(ratios: NDArray[np.float64], mode: float, sd: float) -> float:
    """Log likelihood of pair log ratios whose processes have one of two speeds, `mode` apart, with equal chance."""
    centres = np.array([-mode, 0.0, mode])
    chances = np.array([0.25, 0.5, 0.25])
    density = np.exp(-(((ratios[:, None] - centres) / sd) ** 2) / 2) @ chances / sd
    return float(np.log(np.maximum(density, 1e-300)).sum())


def _median_variance(recording: Recording) -> float:
    """Variance of a pair's median log ratio over turns, from how its even and odd turns differ."""
    halves = []
    for odd in (0, 1):
        turns = [
            msgspec.structs.replace(p, turns=tuple(_every_second(p.turns, len(p.processes), odd)))
            for p in recording.pairs
        ]
        halves.append(pair_log_ratios(msgspec.structs.replace(recording, pairs=tuple(turns))))
    return float(np.mean((halves[0] - halves[1]) ** 2)) / 4


def _every_second(
    turns: tuple[tuple[float, int, float, float], ...], processes: int, odd: int
) -> list[tuple[float, int, float, float]]:
    return [t for i, t in enumerate(turns) if (i // processes) % 2 == odd]


def _model(x: NDArray[np.float64], process: NoiseModel) -> NoiseModel:
    """The search's parameters as a model."""
    *logs, tail, memory = x.tolist()
    values = {name: math.exp(log) for name, log in zip(_BOUNDS, logs, strict=True)}
    return msgspec.structs.replace(process, block_tail=tail, block_memory=memory, **values)


def _typical(recording: Recording, model: NoiseModel, seed: int) -> dict[str, float]:
    """Medians over simulated recordings, always of the same random numbers."""
    rows = [statistics(simulated(recording, model, random.Random(f"{seed}/{i}"))) for i in range(_REPLICATES)]
    return {n: float(np.median([r[n] for r in rows])) for n in NAMES}


def _distance(wanted: Mapping[str, float], found: Mapping[str, float]) -> float:
    """Sum of squared differences in units of what may be expected; statistics that a recording is too short for are
    left out."""
    pairs = [(n, _scaled(n, wanted[n]), _scaled(n, found[n])) for n in _UNITS]
    return sum(((a - b) / _UNITS[n]) ** 2 for n, a, b in pairs if not math.isnan(a - b))


def _scaled(name: str, value: float) -> float:
    return math.log(max(value, _SMALLEST)) if name in SCALED else value


def check(
    model: NoiseModel, fitted: Recording, held_out: Recording, *, runs: int = _CHECK_RUNS, seed: int = 1
) -> dict[str, Checked]:
    """Every statistic of both halves, and where the held-out half's should lie.

    The range is the middle 99 % of what `runs` simulated recordings of its design have, √2 times as far from their
    median: the half that was fitted has an error of its own, as large as that of the one to check.
    """
    seen, other = statistics(fitted), statistics(held_out)
    rows = [statistics(simulated(held_out, model, random.Random(f"{seed}/{i}"))) for i in range(runs)]
    found = {}
    for name in NAMES:
        values = np.array([_scaled(name, r[name]) for r in rows])
        low, middle, high = np.quantile(values, (0.005, 0.5, 0.995)) if not np.isnan(values).any() else [math.nan] * 3
        ends = [middle + math.sqrt(2) * (end - middle) for end in (low, high)]
        if name in SCALED:
            ends = [math.exp(end) for end in ends]
        found[name] = Checked(
            fitted=_known(seen[name]), held_out=_known(other[name]), low=_known(ends[0]), high=_known(ends[1])
        )
    return found


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(f"{value:.4g}")


def halves(recording: Recording) -> tuple[Recording, Recording]:
    """Every second pair, to fit, and the others, to check. The half whose pairs differ more is the one that is fitted:
    where the halves disagree the model errs on the noisy side."""
    other, half = sorted((recording.half(False), recording.half(True)), key=lambda h: statistics(h)["pair_spread"])
    return half, other


def fitted_model(path: Path, *, note: str = "") -> Fitted:
    """Fit every second pair of the recording at `path`, check on the others."""
    recording = read(path)
    half, other = halves(recording)
    model = fit(half)
    model = msgspec.structs.replace(model, block_s=recording.steps * recording.step_s)
    rounded = NoiseModel(**{n: float(f"{getattr(model, n):.4g}") for n in model.__struct_fields__})
    return Fitted(
        name=path.name.split(".json")[0].removesuffix(".events"),
        noise=rounded,
        platform="cpu" if recording.device == "cpu" else "gpu",
        cores=recording.cores,
        step_ms=float(f"{1e3 * recording.step_s:.4g}"),
        compile_s=float(f"{recording.compile_s:.4g}"),
        start_s=float(f"{recording.starting_s:.4g}"),
        recording=path.name,
        workload=recording.workload,
        device=recording.device,
        machine=recording.machine,
        jax=recording.jax,
        note=note,
        check=check(rounded, half, other),
    )


def table(fitted: Fitted, found: Mapping[str, Checked] | None = None) -> str:
    """The model's check as people read it, or another one of it."""
    lines = [f"{fitted.name}: {fitted.device}, jax {fitted.jax}, {fitted.workload}"]
    lines.append(f"  {'':14} {'fitted':>9} {'held out':>9}   {'where it should lie':>22}")
    for name, c in (fitted.check if found is None else found).items():
        cells = [f"{v:9.4f}" if v is not None else f"{'-':>9}" for v in (c.fitted, c.held_out, c.low, c.high)]
        mark = "" if inside(c) else "  outside"
        lines.append(f"  {name:14} {cells[0]} {cells[1]}   {cells[2]} to {cells[3]}{mark}")
    return "\n".join(lines)


def inside(checked: Checked) -> bool:
    """True if the held-out half lies where the model's recordings lie; also if it is too short to tell."""
    if checked.held_out is None or checked.low is None or checked.high is None:
        return True
    return checked.low <= checked.held_out <= checked.high


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path, nargs="+")
    parser.add_argument("--note", default="", help="what readers of the model should know")
    parser.add_argument("--judge", metavar="MODEL", help="hold this model against the recordings instead of fitting")
    parser.add_argument("--out", type=Path, default=MODELS)
    options = parser.parse_args()
    if options.judge:
        model = load(options.judge)
        half, _ = halves(read(RECORDINGS / model.recording))
        for path in options.recordings:
            print(f"{path.name} as held out:\n{table(model, check(model.noise, half, read(path)))}", flush=True)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    for path in options.recordings:
        fitted = fitted_model(path, note=options.note)
        text = msgspec.json.format(msgspec.json.encode(fitted), indent=1)
        (options.out / f"{fitted.name}.json").write_bytes(text + b"\n")
        print(table(fitted), flush=True)


if __name__ == "__main__":
    main()
