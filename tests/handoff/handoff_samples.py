"""Bundles and runs for tests, as a finished pipeline leaves them."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

from tuner.handoff import Bundle, Manifest, Options, write_bundle
from tuner.knobs import Config
from tuner.machine import Environment
from tuner.measure.types import Estimate, Verdict
from tuner.store import EventLog, RunFolder, open_store, workload_digest
from tuner.store.events import RunStarted, StageFinished
from tuner.store.index import Index
from tuner.store.records import BaselineRecord, ConfirmRecord, Finalist, ProbeRecord, SealRecord

FLAGS = "--xla_cpu_experimental_ynn_fusion_type= --xla_cpu_max_isa=AVX2"

FASTER = Manifest(
    created=1.75e9,
    tuner="0.1.0",
    run="nbody-ab12cd",
    workload="nbody.py",
    program="0123456789abcdef",
    environment=Environment(
        identity={"platform": "cpu", "device_kind": "cpu", "jax": "0.10.2", "cpu": "Made Up 9000", "cores": "2"},
        context={"python": "3.11.9"},
    ),
    settings={"xla_cpu_experimental_ynn_fusion_type": "", "xla_cpu_max_isa": "AVX2"},
    held={},
    env={"XLA_FLAGS": FLAGS},
    unset=("JAX_DEFAULT_MATMUL_PRECISION",),
    inherited={"OMP_NUM_THREADS": "2"},
    verdict=Verdict.FASTER,
    estimate=Estimate(gain=math.log(2.0), se=0.01, low=math.log(1.9), high=math.log(2.1), n=6),
    control_ms=20.0,
    best_ms=10.0,
)
DEFAULT = msgspec.structs.replace(FASTER, settings={}, env={}, unset=(), best_ms=20.0, verdict=Verdict.SAME)
OPTIONS = Options(compiler_options={"xla_cpu_experimental_ynn_fusion_type": "", "xla_cpu_max_isa": "AVX2"})


def keep_run(store: Path, workload: Path, name: str, *, options: dict[str, str] | None = None) -> RunFolder:
    """A run of `workload` that has only begun."""
    run = RunFolder(path=store / "runs" / name)
    run.create()
    with EventLog(run.events) as log:
        log.append(
            RunStarted(
                run=name,
                workload=str(workload),
                command=("tune", str(workload)),
                identity={"workload": workload_digest(workload)},
                options=options or {},
                inherited={},
                tuner="0.1.0",
            )
        )
    return run


def indexed(run: RunFolder) -> None:
    """Let the store's database know what `run` holds by now."""
    store = open_store(run.path.parent.parent)
    index = Index(store.url, runs=store.runs)
    index.rebuild([run])
    index.close()


def seal(
    run: RunFolder, manifest: Manifest = FASTER, *, options: Options | None = OPTIONS, cache: Path | None = None
) -> Bundle:
    """The next bundle of `run`, told in its log as well."""
    bundle = write_bundle(run.bundle, msgspec.structs.replace(manifest, run=run.id), options=options, cache=cache)
    made = bundle.manifest
    config = Config.of(made.settings)
    found = made.estimate or Estimate(gain=0.0, se=0.01, low=-0.02, high=0.02, n=6)
    finalist = Finalist(
        config=config, estimate=found, verdict=made.verdict, log_ratios=(), best_ms=10.0, control_ms=20.0
    )
    confirm = ConfirmRecord(
        finalists=(finalist,),
        chosen=config,
        verdict=made.verdict,
        estimate=made.estimate,
        control_ms=20.0,
        best_ms=10.0,
        pairs=6,
        alive_together=True,
    )
    sealed = SealRecord(
        bundle=str(bundle.path),
        environment=made.env,
        cache_requests=0,
        cache_hits=0,
        first_step_cold_s=0.0,
        first_step_warm_s=0.0,
        notices=(),
        number=made.number,
    )
    probe = ProbeRecord(
        environment=made.environment, offered=(), live=(), knobs=(), left=(), option_types={}, notices=()
    )
    baseline = BaselineRecord(
        program=made.program,
        control_ms=20.0,
        steps_per_block=1,
        steps_discarded=1,
        noise=0.01,
        drift=0.0,
        resolution=0.01,
        start_s=1.0,
        compile_s=1.0,
        peak_bytes=None,
        tolerances=(),
        numerics_steps=1,
        carried=(),
        pair_s=1.0,
        reserve_s=1.0,
        skipped=(),
    )
    stages = (("probe", probe), ("baseline", baseline), ("confirm", confirm), ("seal", sealed))
    with EventLog(run.events) as log:
        for stage, record in stages:
            log.append(StageFinished(stage=stage, seconds=1.0, record=record))
    return bundle
