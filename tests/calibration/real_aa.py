"""Real A/A: whole runs on this machine's CPU over knobs of which none can help, to see how often one is said to.

    python tests/calibration/real_aa.py --runs 30 --out tests/calibration/results/real-aa.json

The knobs do nothing on a CPU (they are about GPUs, or set what is the default already) or make the step slower. Each
run is fresh and takes about `--budget` seconds; runs that are in `--out` already are not repeated. The machine should
be otherwise idle.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import tempfile
import time
from pathlib import Path

import msgspec
from studies import Share, share

from tuner.knobs import DEFAULT
from tuner.measure import Verdict
from tuner.pipeline.options import RunOptions
from tuner.pipeline.run import tune
from tuner.store.events import StageFinished, TrialFinished
from tuner.store.records import ConfirmRecord, ScreenRecord

_ROOT = Path(__file__).parents[2]
_JAX = importlib.metadata.version("jax")

# (name, carrier, type, value, what it is declared to act on): what each is doing here stands beside it.
_KNOBS = (
    # The GPU compiler's: every jaxlib knows them, and they mean nothing on a CPU. The fingerprint shows that of some …
    ("xla_gpu_enable_triton_gemm", "xla_flag", "bool", "false", "hlo"),
    ("xla_gpu_enable_latency_hiding_scheduler", "xla_flag", "bool", "true", "hlo"),
    ("xla_gpu_all_reduce_combine_threshold_bytes", "xla_flag", "int", "1024", "hlo"),
    # … and can't of what acts on libraries and at run time: each is timed by itself, so noise has its chance.
    ("xla_gpu_cublas_fallback", "xla_flag", "bool", "false", "library"),
    ("xla_gpu_cudnn_gemm_fusion_level", "xla_flag", "int", "1", "library"),
    ("xla_gpu_enable_cublaslt", "xla_flag", "bool", "true", "library"),
    ("xla_gpu_enable_cub_radix_sort", "xla_flag", "bool", "false", "library"),
    ("xla_gpu_enable_cudnn_layer_norm", "xla_flag", "bool", "true", "library"),
    ("xla_gpu_force_conv_nhwc", "xla_flag", "bool", "true", "library"),
    ("xla_gpu_copy_insertion_use_region_analysis", "xla_flag", "bool", "true", "runtime"),
    ("xla_gpu_enable_highest_priority_async_stream", "xla_flag", "bool", "false", "runtime"),
    ("xla_gpu_graph_min_graph_size", "xla_flag", "int", "1", "runtime"),
    ("xla_gpu_memory_limit_slop_factor", "xla_flag", "int", "90", "runtime"),
    ("xla_gpu_temp_buffer_use_separate_color", "xla_flag", "bool", "true", "runtime"),
    # The default already.
    ("xla_cpu_enable_fast_math", "xla_flag", "bool", "false", "hlo"),
    ("xla_llvm_disable_expensive_passes", "xla_flag", "bool", "false", "hlo"),
    # Slower: no optimisations.
    ("xla_backend_optimization_level", "xla_flag", "int", "0", "hlo"),
    # Nobody reads them here, and each needs a process: timed where there is time for that.
    ("NCCL_DEBUG", "env", "string", "VERSION", "runtime"),
    ("NCCL_ALGO", "env", "string", "Ring", "runtime"),
    ("CUDA_CACHE_DISABLE", "env", "string", "1", "runtime"),
)


def _knob(name: str, carrier: str, kind: str, value: str, acts_on: str) -> str:
    return f"""
[[knob]]
name = "{name}"
carrier = "{carrier}"
type = "{kind}"
values = ["unset", "{value}"]
lane = "{"option" if carrier == "xla_flag" else "environment"}"
acts_on = "{acts_on}"
why = "does nothing on a CPU, or makes it slower"
source = "calibration"
"""


SPACE = "version = 1\n" + "".join(_knob(*knob) for knob in _KNOBS)
"""The space as TOML."""


class RealRow(msgspec.Struct, frozen=True, kw_only=True):
    """One run: its verdict, what it chose, and the headline's interval as gains; None where nothing was confirmed.
    `log_ratios`: of each finalist, one a pair of fresh processes: what the verdict rests on.

    `timed`: configs that had samples of their own, each a chance for noise; `inert`: knobs that compiled to the
    control's program; `skipped`: knobs that there was no time for; `finalists`: configs that were confirmed.
    `load_1m`: the machine's load when the run began.
    """

    run: int
    verdict: str
    chosen: dict[str, str]
    gain: float | None
    low: float | None
    high: float | None
    pairs: int
    timed: int
    inert: int
    skipped: int
    finalists: int
    seconds: float
    log_ratios: list[list[float]] = []
    load_1m: float = 0.0


class Real(msgspec.Struct, frozen=True, kw_only=True):
    """All runs. `false_winners`: a verdict `faster`, though nothing can help."""

    workload: str
    budget_s: float
    jax: str
    machine: str
    cores: int
    rows: list[RealRow]
    false_winners: Share


def run_once(workload: Path, number: int, budget_s: float) -> RealRow:
    """One real run in a store of its own."""
    with tempfile.TemporaryDirectory(prefix="real-aa-") as name:
        folder = Path(name)
        (folder / "nothing_helps.toml").write_text(SPACE)
        began, load = time.monotonic(), os.getloadavg()[0]
        events = tune(
            RunOptions(
                workload=workload,
                spaces=(str(folder / "nothing_helps.toml"),),
                platform="cpu",
                store=str(folder / "store"),
                budget_s=budget_s,
                command=("tune", workload.name),
                seed=number,
            )
        ).events
        took_s = time.monotonic() - began
    stages = {e.stage: e for e in events if isinstance(e, StageFinished)}
    confirmed, screened = stages["confirm"].record, stages["screen"].record
    assert isinstance(confirmed, ConfirmRecord)
    assert isinstance(screened, ScreenRecord)
    estimate = confirmed.estimate
    return RealRow(
        run=number,
        verdict=confirmed.verdict.value,
        chosen=confirmed.chosen.as_dict(),
        gain=estimate.gain if estimate else None,
        low=estimate.low if estimate else None,
        high=estimate.high if estimate else None,
        pairs=confirmed.pairs,
        timed=sum(
            isinstance(e, TrialFinished) and e.estimate is not None and e.shared_with < 0 and e.config != DEFAULT
            for e in events
        ),
        inert=sum(s.status == "inert" for s in screened.left),
        skipped=sum(s.status == "skipped" for s in screened.left),
        finalists=len(confirmed.finalists),
        seconds=round(took_s, 1),
        log_ratios=[[round(x, 6) for x in f.log_ratios] for f in confirmed.finalists],
        load_1m=load,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", type=Path, default=_ROOT / "workloads" / "nbody.py")
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of each run")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows: list[RealRow] = []
    if options.out.exists():
        before = msgspec.json.decode(options.out.read_bytes(), type=Real)
        if (before.workload, before.budget_s, before.jax) != (options.workload.name, options.budget, _JAX):
            raise SystemExit(f"{options.out} holds other runs: {before.workload}, {before.budget_s:g} s, {before.jax}")
        rows = before.rows
    for number in range(len(rows), options.runs):
        row = run_once(options.workload.resolve(), number, options.budget)
        rows.append(row)
        print(
            f"run {number + 1} of {options.runs}: {row.verdict} {row.chosen or ''} in {row.seconds:.0f} s", flush=True
        )
        real = Real(
            workload=options.workload.name,
            budget_s=options.budget,
            jax=_JAX,
            machine=platform.platform(terse=True),
            cores=os.cpu_count() or 1,
            rows=rows,
            false_winners=share(r.verdict == Verdict.FASTER for r in rows),
        )
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_bytes(msgspec.json.format(msgspec.json.encode(real), indent=1) + b"\n")
    if rows:
        print(f"false winners: {share(r.verdict == Verdict.FASTER for r in rows)}")


if __name__ == "__main__":
    main()
