"""The simulations whose numbers stand in tuner/measure/README.md.

Run ``PYTHONPATH=. python tests/measure/measure_simulation.py`` from the repository's root. They are larger than what
the tests run, so that the last digit means something: some minutes on one core.
"""

from __future__ import annotations

import math

import numpy as np
from measure_pairs import confirmations
from measure_samples import NOISES, noise

from tuner.measure import PairCost, Verdict, confirm, estimate, resolution
from tuner.measure.confirmation import FALSE_FASTER, boundaries, critical_t
from tuner.measure.racing import log_evidence

LOOKS = (6, 8, 10, 12)


def coverage() -> None:
    rng = np.random.default_rng(0)
    print("estimate: coverage of the nominal 95 % interval, correlation 0.1, 3,000 runs")
    for kind in ("normal", "t3", "stalls"):
        cells = []
        for n in (4, 6, 7, 8, 10, 14, 20, 40):
            found = [estimate(row) for row in noise(rng, (3000, n), kind, autocorrelation=0.1)]
            cells.append(f"n={n} {100 * np.mean([e.low < 0 < e.high for e in found]):.1f}")
        print(f"  {kind:7}", *cells)


def false_evidence() -> None:
    rng = np.random.default_rng(1)
    print("log_evidence: chance of ever reaching 1/a in 60 rounds, as a share of a = 1/50, 1/200, 1/1000; 20,000 runs")
    for kind in NOISES:
        for correlation in (0.0, 0.1, 0.2):
            found = log_evidence(noise(rng, (20_000, 60), kind, autocorrelation=correlation), min_rounds=4)
            cells = [f"{np.mean(found >= math.log(1 / a)) / a:.2f}" for a in (1 / 50, 1 / 200, 1 / 1000)]
            print(f"  {kind:7} correlation {correlation}:", *cells)


def rounds_to_drop() -> None:
    rng = np.random.default_rng(2)
    print(
        "log_evidence: median rounds until one of 21 arms leaves, by its distance in sd of a round; 300 runs, 60 rounds"
    )
    for kind in ("normal", "t3", "stalls"):
        cells = []
        for effect in (0.5, 1, 2, 3, 5, 20):
            x = noise(rng, (300, 60), kind) + effect
            gone = np.array([log_evidence(x[:, :n], min_rounds=4) >= math.log(20 / 0.02) for n in range(4, 61)])
            rounds = np.where(gone.any(axis=0), gone.argmax(axis=0) + 4, np.inf)
            cells.append(f"{effect}: {np.median(rounds):.0f} ({100 * np.isfinite(rounds).mean():.0f} %)")
        print(f"  {kind:7}", *cells)


def false_faster() -> None:
    rng = np.random.default_rng(3)
    print("critical_t: chance that any look exceeds it, nominal 0.5 %, 400,000 runs; without its correction")
    for looks in (LOOKS, (3, 6, 9, 12), (2, 4, 6), (6, 12)):
        x = rng.standard_normal((400_000, looks[-1]))
        plain, corrected = np.zeros(len(x), bool), np.zeros(len(x), bool)
        z = boundaries(looks, FALSE_FASTER)
        for index, n in enumerate(looks):
            t = x[:, :n].mean(axis=1) / x[:, :n].std(axis=1, ddof=1) * math.sqrt(n)
            corrected |= t > critical_t(looks, index, FALSE_FASTER)
            plain |= t > _same_tail(z[index], n - 1)
        print(f"  {looks}: {100 * corrected.mean():.2f} %; {100 * plain.mean():.2f} %")
    print("confirm: two finalists that do nothing and share the default's processes, margin 0, 4,000 runs")
    for kind in ("normal", "t3", "stalls"):
        wrong = missed = 0
        for _ in range(4000):
            default, *own = 0.005 * noise(rng, (3, 12), kind)
            state = confirm({"f": default - own[0], "g": default - own[1]}, margin=0.0)
            wrong += Verdict.FASTER in state.verdicts.values()
            missed += any(not e.low <= 0 <= e.high for e in state.estimates.values())
        print(f"  {kind:7} any false faster {wrong / 40:.2f} %, any interval that misses {missed / 40:.2f} %")


def _same_tail(z: float, degrees: int) -> float:
    from scipy.special import ndtr, stdtrit

    return float(-stdtrit(degrees, ndtr(-z)))


def power() -> None:
    print("resolution, in sd of a pair, one and two finalists:")
    for pairs in LOOKS:
        cells = [f"{resolution(0.0, 1.0, rounds=1, pairs=pairs, finalists=k):.2f}" for k in (1, 2)]
        print(f"  {pairs} pairs:", *cells)


def turns() -> None:
    print("turns a pair, ten or chosen: found, seconds, variance x seconds x 1e6 (500 runs); false faster (2,000 runs)")
    for name, cost in (("CPU", PairCost(setup_s=2.7, turn_s=0.12)), ("GPU", PairCost(setup_s=36.0, turn_s=0.6))):
        for round_sd, process_sd in ((0.015, 0.0), (0.005, 0.005), (0.002, 0.008)):
            gain = 1.3 * math.hypot(process_sd, round_sd * math.sqrt(math.pi / 2 * 1.1 / 0.9 / 10))
            cells = []
            for adaptive in (False, True):
                how = {"round_sd": round_sd, "process_sd": process_sd, "cost": cost, "adaptive": adaptive}
                found = confirmations(500, gain=gain, **how)  # type: ignore[arg-type]
                null = confirmations(2000, gain=0.0, seed=1, **how)  # type: ignore[arg-type]
                spent = f"{100 * found.faster:.0f} % {found.seconds:.0f} s {1e6 * found.cost:.0f}"
                cells.append(f"{spent}; {100 * null.faster:.2f} %")
            print(f"  {name} round {100 * round_sd} % process {100 * process_sd} %:", " | ".join(cells))


if __name__ == "__main__":
    for part in (coverage, false_evidence, rounds_to_drop, false_faster, power, turns):
        part()
