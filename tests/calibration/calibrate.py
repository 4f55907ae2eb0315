"""Calibrate: run studies on every fitted model, and print and keep what they found.

    python tests/calibration/calibrate.py --studies 3000 --power 300

runs so many studies in which nothing helps, and so many for each true gain of 0.5, 1 and 2 %, on each model. It goes on
where an earlier call was stopped. `results/` gets one JSON file a model and gain.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
from fit import MODELS, load
from fit import table as model_table
from studies import ROWS, Design, Share, Summary, run_studies, share, summary

__all__ = ["NOTHING", "pooled", "table", "verdicts"]

RESULTS = Path(__file__).parent / "results"

NOTHING = 0.0
"""The gain of A/A: nothing helps."""

_GAINS = (0.5, 1.0, 2.0)
# What is aimed at: at most so many false winners; of true gains of 1 % on quiet machines, and of intervals, so many.
_FALSE_WINNERS = 0.01
_POWER, _POWER_GAIN = 0.95, 0.01
_COVERAGE = 0.93
# A machine is quiet where pairs of processes differ by no more than this.
_QUIET = 0.002


def line(found: Summary) -> str:
    """A summary as people read it."""
    width = "-" if found.half_width is None else f"{100 * found.half_width:.2f} %"
    cells = [f"{found.design:36} {found.studies:5} studies"]
    cells.append(f"false winners {found.false_winners}")
    if found.gain:
        cells += [f"found {found.found}", f"alone {found.alone}"]
    cells += [
        f"intervals hold the truth {found.covered}",
        f"a later measurement agrees {found.predicted}",
        f"± {width}",
    ]
    cells.append(f"verdicts {found.verdicts}")
    if found.errors:
        cells.append(f"{found.errors} RUNS FAILED")
    return "; ".join(cells)


def table(summaries: Sequence[Summary]) -> str:
    """The summaries as a Markdown table, by model and gain."""
    heads = ["model", "true gain", "studies", "falsely faster", "found", "alone"]
    heads += ["interval holds the truth", "a later measurement agrees", "half-width"]
    rows = [heads, ["---"] * len(heads)]
    for found in sorted(summaries, key=lambda s: (s.design.rpartition(".gain")[0], s.gain)):
        rows.append(
            [
                found.design.rpartition(".gain")[0],
                f"{100 * found.gain:g} %",
                str(found.studies),
                _cell(found.false_winners),
                _cell(found.found),
                _cell(found.alone),
                _cell(found.covered),
                _cell(found.predicted),
                "" if found.half_width is None else f"{100 * found.half_width:.2f} %",
            ]
        )
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _cell(value: Share) -> str:
    return f"{value.count}/{value.of} ({100 * value.low:.1f}–{100 * value.high:.1f} %)" if value.of else ""


def stored(folder: Path = RESULTS) -> list[Summary]:
    """The summaries that are kept, whichever call made them."""
    return [msgspec.json.decode(path.read_bytes(), type=Summary) for path in sorted(folder.glob("*.gain-*.json"))]


def pooled(summaries: Sequence[Summary]) -> tuple[Share, Share]:
    """False winners of all A/A studies, and headline intervals of all studies that hold the truth."""
    null = [s.false_winners for s in summaries if s.gain == NOTHING]
    return _sum(null), _sum([s.covered for s in summaries])


def _sum(shares: Sequence[Share]) -> Share:
    return share([True] * sum(s.count for s in shares) + [False] * sum(s.of - s.count for s in shares))


def verdicts(summaries: Sequence[Summary], quiet: frozenset[str]) -> list[str]:
    """Each target, and whether it is met by the count itself. `quiet`: designs on quiet machines."""
    false_winners, covered = pooled(summaries)
    lines = [
        _target("A/A, all models: false winners", false_winners, most=_FALSE_WINNERS),
        _target("intervals of all studies that hold the truth", covered, least=_COVERAGE),
    ]
    for found in summaries:
        if found.gain == _POWER_GAIN and found.design in quiet:
            lines.append(_target(f"{found.design}: found", found.found, least=_POWER))
    return lines


def _target(what: str, value: Share, *, least: float = 0.0, most: float = 1.0) -> str:
    if not value.of:
        return f"not told: {what}"
    met = least <= value.count / value.of <= most
    wanted = f"at least {100 * least:g} %" if least else f"at most {100 * most:g} %"
    return f"{'met   ' if met else 'MISSED'}: {what}: {value}, wanted {wanted}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=3000, help="A/A studies a model")
    parser.add_argument("--power", type=int, default=300, help="studies a model and true gain")
    parser.add_argument("--models", nargs="+", default=sorted(p.stem for p in MODELS.glob("*.json")), metavar="MODEL")
    parser.add_argument("--gains", type=float, nargs="*", default=_GAINS, metavar="PERCENT", help="true gains")
    parser.add_argument("--budget", type=float, default=600.0, help="seconds of each run, in the machine's time")
    parser.add_argument(
        "--first-seed", type=int, default=0, help="seeds count from here: fresh ones test what older ones shaped"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rows", type=Path, default=ROWS, help="where finished studies are kept to go on from")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="print what is in --out as Markdown, and the targets")
    options = parser.parse_args()
    if options.table:
        kept = stored(options.out)
        print(table(kept), *verdicts(kept, _on_quiet(kept)), sep="\n")
        return
    options.out.mkdir(parents=True, exist_ok=True)
    models = [load(name) for name in options.models]
    for model in models:
        print(model_table(model), flush=True)
    summaries: list[Summary] = []
    for model in models:
        for gain in (NOTHING, *(g / 100 for g in options.gains)):
            design = Design(model=model, gain=gain, budget_s=options.budget)
            studies = options.power if gain else options.studies
            if not studies:
                continue
            found = summary(
                design,
                run_studies(design, studies, workers=options.workers, rows=options.rows, first_seed=options.first_seed),
            )
            text = msgspec.json.format(msgspec.json.encode(found), indent=1)
            (options.out / f"{design.name}.json").write_bytes(text + b"\n")
            summaries.append(found)
            print(line(found), flush=True)
    print("\n".join(verdicts(summaries, _on_quiet(summaries))))


def _on_quiet(summaries: Sequence[Summary]) -> frozenset[str]:
    """The designs on quiet machines."""
    spreads = {s.design: load(s.design.rpartition(".gain")[0]).check["pair_spread"].fitted for s in summaries}
    return frozenset(design for design, spread in spreads.items() if spread is not None and spread <= _QUIET)


if __name__ == "__main__":
    main()
