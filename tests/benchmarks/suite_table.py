"""The suite's results out of kept runs: the default, each published preset and the tuner; nulls included.

    python tests/benchmarks/keep.py workloads/conv.py workloads/pde.py --budget 10m --out suite
    python tests/benchmarks/suite_table.py suite

Prints Markdown. Presets were timed in the run's own session beside its default, ours in fresh processes; each with its
95 % interval. The geometric mean takes 1 where the defaults were kept, since that is what is emitted. Below it, where
each run's time went, and whether any preset lies beyond ours, timed in one session, by more than the intervals. A run
to which `keep.py` gave a name that ends in "-numerics" was allowed to change numbers, and is counted apart.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tuner.api import load_run
from tuner.measure import Estimate, Verdict
from tuner.report.view import RunView

__all__ = ["presets_of", "speedup", "table"]

BEST = "best in session"
_NUMERICS = "-numerics"


def speedup(value: Estimate | None) -> str:
    if value is None or not math.isfinite(value.gain):
        return "–"
    ends = [math.exp(v) if v < 50 else math.inf for v in (value.low, value.high)]
    return f"{math.exp(value.gain):.3f}x ({ends[0]:.3f}–{ends[1]:.3f})"


def presets_of(view: RunView) -> dict[str, Estimate]:
    """Each preset's gain in the session, by name, and that of whatever the search found best."""
    measured = view.presets.measured if view.presets else ()
    found = {m.label.removeprefix("preset "): m.estimate for m in measured if m.label.startswith("preset ")}
    return found | ({BEST: view.search.best[0].estimate} if view.search and view.search.best else {})


def emitted(view: RunView) -> Estimate | None:
    """The gain of what a run emitted; None where that is the default."""
    return view.confirm.estimate if view.confirm and view.confirm.verdict is Verdict.FASTER else None


def beyond(view: RunView, gains: Mapping[str, Estimate]) -> list[str]:
    """The presets that lie beyond what was emitted, in the session that timed both: a process's default may be a slow
    compile of it, which makes everything in that session look faster."""
    reduced = view.minimise.reduced if view.minimise else None
    found = emitted(view)
    if found and view.confirm and reduced and reduced.config == view.confirm.chosen:
        found = reduced.estimate
    top = max(found.high if found else 0.0, math.log1p(0.005))
    return [name for name, value in gains.items() if name != BEST and value.low > top]


def table(views: Mapping[str, RunView]) -> str:
    """Markdown, `views` by name."""
    gains = {name: presets_of(view) for name, view in views.items()}
    presets = list(dict.fromkeys(p for found in gains.values() for p in found))
    rows, warnings = [], []
    for name, view in views.items():
        confirm = view.confirm
        kept = [f"`{k}={v}`" for k, v in confirm.chosen.settings] if confirm else []
        told = "<br>".join(kept) or f"defaults ({confirm.verdict.value if confirm else 'unfinished'})"
        default = f"{confirm.control_ms:.3g} ms" if confirm and confirm.control_ms else "–"
        ours = speedup(confirm.estimate if confirm else None)
        rows.append([name, default, *(speedup(gains[name].get(p)) for p in presets), ours, told])
        warnings += [f"{name}: preset {p} {speedup(gains[name][p])} lies beyond" for p in beyond(view, gains[name])]
    lines = _markdown(["workload", "default", *presets, "ours", "kept"], rows)
    for title, part in (
        ("unchanged numbers", [v for n, v in views.items() if not n.endswith(_NUMERICS)]),
        ("numbers allowed to change", [v for n, v in views.items() if n.endswith(_NUMERICS)]),
    ):
        if part:
            mean = math.exp(sum(e.gain for v in part if (e := emitted(v))) / len(part))
            lines += ["", f"Geometric mean over the default, {title}, {len(part)} workloads: {mean:.3f}x."]
    lines += ["", *(warnings or ["No preset lies beyond what was emitted."]), "", "Where the time went, seconds:", ""]
    spent = {name: msgspec.structs.asdict(view.spent) for name, view in views.items()}
    parts = list(next(iter(spent.values()), {}))
    times = [
        [name, *(f"{s[part]:.0f}" for part in parts), f"{100 * s['other_s'] / s['total_s']:.1f} %"]
        for name, s in spent.items()
    ]
    lines += _markdown(["workload", *(part.removesuffix("_s") for part in parts), "of it other"], times)
    return "\n".join(lines)


def _markdown(head: list[str], rows: list[list[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    logs = sorted(parser.parse_args().folder.glob("*.events.jsonl.gz"))
    print(table({path.name.partition("-jax")[0]: RunView.of(load_run(path).events) for path in logs}))


if __name__ == "__main__":
    main()
