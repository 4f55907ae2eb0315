"""Stage 8, seal: build the bundle, prove that a fresh process loads it without compiling the step again, profile."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import msgspec

import tuner
from tuner.errors import SessionEnded
from tuner.handoff import Bundle, Control, Manifest, Options, gathered, next_number, production, sealing, write_bundle
from tuner.knobs import DEFAULT, Config, recipe_of, split, variant, workload_knobs
from tuner.machine import relevant
from tuner.measure import Verdict
from tuner.pipeline.bench import CONTROL
from tuner.pipeline.benches import Benches
from tuner.pipeline.context import Run
from tuner.pipeline.delivering import delivered_profile, fills_cache, sealed_variant, settle
from tuner.pipeline.gate import limits_for
from tuner.pipeline.launches import emitted, launch
from tuner.pipeline.own_command import fill_by_command, prove_by_command
from tuner.pipeline.profiles import profile_sides
from tuner.pipeline.sealed import DRAWS, Sealed, best_draw, compare, draws_differ
from tuner.protocol.failure import Failure
from tuner.protocol.messages import Arm, Block, CacheModule, Variant
from tuner.report.wording import ratio
from tuner.store.events import SessionClosed, SessionStarted
from tuner.store.records import BaselineRecord, ConfirmRecord, ProbeRecord, SealRecord

__all__ = ["run_seal"]

_PLAIN = Variant(id=CONTROL)


class _FirstStep(msgspec.Struct, frozen=True):
    """A fresh process's way to its first finished step: seconds from lowering on, and what it looked for in the
    persistent cache since it started."""

    seconds: float
    modules: tuple[CacheModule, ...]

    @property
    def missed(self) -> tuple[CacheModule, ...]:
        return tuple(m for m in self.modules if not m.hit)


def run_seal(run: Run, benches: Benches) -> SealRecord:
    """Fill a cache in a fresh process, measure what is in it by itself, write the bundle, then load that in another
    process and count its hits; then profile default and winner.

    Trouble with the cache costs the cache, not the result: the bundle is then written without it, with a notice.
    """
    benches.close()
    confirmed = run.record("confirm", ConfirmRecord)
    chosen = confirmed.chosen
    caches = [run.folder.scratch / f"jax_cache-{index}" for index in range(DRAWS)]
    for folder in caches:
        shutil.rmtree(folder, ignore_errors=True)
    notices: list[str] = []
    run.status("seal", "filling the compilation cache in a fresh process")
    guide = sealed_variant(run, chosen)
    with _emptied(run.folder.scratch):
        cold = _filled(run, chosen, caches[0], notices, guide)
    cache, sealed, draws_ms = caches[0], Sealed(), tuple[float, ...]()
    filled = cold is not None and cache.is_dir() and any(cache.iterdir())
    if not filled and fills_cache(run, chosen):
        notices.append(f"{chosen} can't be delivered without its cache (see --pgle): the bundle holds the default")
        confirmed = msgspec.structs.replace(confirmed, chosen=DEFAULT, verdict=Verdict.UNCLEAR, estimate=None)
        chosen = DEFAULT
    if filled and confirmed.verdict is Verdict.FASTER:
        if draws_differ(run, confirmed):
            others = [c for c in caches[1:] if _filled(run, chosen, c, [], guide) is not None]
            index, draws_ms = best_draw(run, chosen, [cache, *others])
            cache = [cache, *others][index]
        sealed = compare(run, chosen, cache)
        _say(run, confirmed, sealed)
    first = fill_by_command(run, chosen, cache) if filled and run.options.seal_with else None
    bundle = write_bundle(
        run.folder.bundle,
        _manifest(run, confirmed, sealed, tuple(notices), cold.modules if cold else ()),
        options=_options(run, chosen),
        workload_knobs={**run.workload_knobs, **workload_knobs(run.held.join(chosen), run.space)},
        profile=delivered_profile(run, chosen),
        cache=cache if filled else None,
    )
    warm = None
    if bundle.cache is not None:
        run.status("seal", "loading the bundle in another fresh process")
        found = {"JAX_ENABLE_COMPILATION_CACHE": None, **production(bundle.cache)}
        warm = _first_step(run, chosen, "verify", found, notices)
        if warm is not None and warm.missed:
            missed, some = len(warm.missed), ", ".join(dict.fromkeys(map(_named, warm.missed)))
            notices.append(f"{missed} of {len(warm.modules)} compiles weren't found in the sealed cache: {some}")
    command = None
    if bundle.cache is not None and first is not None:
        command = prove_by_command(run, chosen, bundle.cache, first, notices)
    for folder in caches:
        shutil.rmtree(folder, ignore_errors=True)
    _lay_out(run, bundle)
    profile_sides(run, chosen, cache=bundle.cache)
    for text in notices:
        run.notice(text)
    return SealRecord(
        bundle=str(bundle.path),
        environment=bundle.manifest.env,
        cache_requests=len(warm.modules) if warm else 0,
        cache_hits=len(warm.modules) - len(warm.missed) if warm else 0,
        first_step_cold_s=cold.seconds if cold else 0.0,
        first_step_warm_s=warm.seconds if warm else 0.0,
        notices=tuple(notices),
        sealed=sealed.estimate,
        sealed_ms=sealed.ms,
        sealed_pairs=sealed.pairs,
        sealed_note=sealed.note,
        draws_ms=draws_ms,
        number=bundle.manifest.number,
        modules=warm.modules if warm else (),
        command=command,
    )


@contextmanager
def _emptied(folder: Path) -> Iterator[None]:
    """What earlier stages left in `folder` goes while the block runs, which times nothing: reference outputs can be
    gigabytes, and nobody compares with them any more."""
    left = list(folder.glob("*"))  # a run that is sealed again has no such folder any more
    with ThreadPoolExecutor(1, thread_name_prefix="tuner-scratch") as pool:
        for path in left:
            pool.submit(shutil.rmtree if path.is_dir() else os.unlink, path)
        yield


def _named(module: CacheModule) -> str:
    return f"{module.module} of rank {module.rank}" if module.rank else module.module


def _filled(run: Run, config: Config, cache: Path, notices: list[str], variant: Variant | Failure) -> _FirstStep | None:
    """As `_first_step`, in a process, or gang of them, that fills `cache`."""
    found = _first_step(run, config, "seal", sealing(cache), notices, fills_cache=True, variant=variant)
    if cache.is_dir():
        gathered(cache)
    return found


def _say(run: Run, confirmed: ConfirmRecord, sealed: Sealed) -> None:
    """Tell what users would otherwise only see by comparing the two claims."""
    if sealed.note:
        run.notice(f"the sealed executable was not measured by itself: {sealed.note}")
    settings = confirmed.estimate
    if sealed.estimate is not None and settings is not None and sealed.estimate.high < settings.low:
        run.notice(
            f"the sealed executable is slower, {ratio(sealed.estimate)}, than what its settings do in a fresh compile, "
            f"{ratio(settings)}: an unlucky compile. Without the cache, or sealed anew (--fresh), it may be faster"
        )


def _first_step(
    run: Run,
    config: Config,
    name: str,
    env: Mapping[str, str | None],
    notices: list[str],
    *,
    fills_cache: bool = False,
    variant: Variant | Failure = _PLAIN,
) -> _FirstStep | None:
    """Start the emitted form under `env`, compile the step (as `variant`), run it once, and on until it has recompiled
    itself where it does. None, with a notice, if that fails."""
    if isinstance(variant, Failure):
        notices.append(f"the compilation cache is not sealed: {variant.message}")
        return None
    session = run.factory(launch(run, name, role="seal", config=config, env=env, fills_cache=fills_cache))
    try:
        began = run.budget.now()
        loaded = session.start()
        run.emit(
            SessionStarted(
                session=session.launch.log.stem,
                role="seal",
                config=config,
                env=dict(session.launch.env),
                loaded=loaded,
                start_s=run.budget.now() - began,
            )
        )
        began = run.budget.now()
        reply = session.compile([variant])
        results: tuple[object, ...] = reply.results
        if not isinstance(results[0], Failure):
            results = session.round([Arm(id=CONTROL, steps=1)])
        took_s = run.budget.now() - began
        if failed := settle(run, config, session):
            results = (failed,)
    except SessionEnded as ended:
        results = (ended.failure,)
    finally:
        ended_by = session.ended
        session.close()
        run.emit(SessionClosed(session=session.launch.log.stem, failure=ended_by))
    result = results[0]
    if isinstance(result, Block):
        return _FirstStep(took_s - result.seconds, reply.modules)
    if isinstance(result, Failure):
        notices.append(f"the compilation cache is not sealed: {result.message} (see {session.launch.log})")
    return None


def _manifest(
    run: Run, confirmed: ConfirmRecord, sealed: Sealed, notices: tuple[str, ...], modules: tuple[CacheModule, ...]
) -> Manifest:
    env, baseline = emitted(run, confirmed.chosen), run.record("baseline", BaselineRecord)
    faster = confirmed.verdict is Verdict.FASTER
    return Manifest(
        created=time.time(),
        tuner=tuner.__version__,
        run=run.folder.id,
        workload=run.workload.path.name,
        program=baseline.program,
        first_program=baseline.first_program,
        environment=run.record("probe", ProbeRecord).environment,
        settings=confirmed.chosen.as_dict(),
        held=run.held.as_dict(),
        env={n: v for n, v in env.items() if v is not None},
        unset=tuple(n for n, v in env.items() if v is None),
        inherited={n: v for n, v in relevant(run.inherited).items() if n not in env},
        verdict=confirmed.verdict,
        estimate=confirmed.estimate if faster else None,
        control_ms=confirmed.control_ms,
        best_ms=confirmed.best_ms,
        objective=confirmed.objective,
        pgle=run.options.pgle if recipe_of(confirmed.chosen) else "",
        sealed=sealed.estimate,
        sealed_note=sealed.note,
        notices=notices,
        number=next_number(run.folder.path.parent, run.workload.path.name),
        modules=modules,
        control=Control(
            argv=run.options.argv,
            platform=run.options.platform,
            knobs=dict(run.workload_knobs),
            env=emitted(run, DEFAULT),
            launch=run.options.launch,
            margin=run.margin,
            form=baseline.form,
            numerics_steps=baseline.numerics_steps,
            tolerances=limits_for(run, confirmed.chosen),
        ),
    )


def _options(run: Run, config: Config) -> Options | None:
    """The config as compile options of one function; None if some of it needs the whole process, or a profile."""
    environment, option = split(run.held.join(config), run.space)
    if environment.settings or recipe_of(config):
        return None
    form = variant(CONTROL, option, run.space)
    return Options(compiler_options=form.compiler_options, jax_config=form.jax_config)


def _lay_out(run: Run, bundle: Bundle) -> None:
    """Copies of the bundle's files where people look first: beside the event log."""
    for source, target in (
        (bundle.env_file, run.folder.best_env),
        (bundle.shell_file, run.folder.best_sh),
        (bundle.json_file, run.folder.best_json),
    ):
        if source is not None:
            shutil.copyfile(source, Path(target))
