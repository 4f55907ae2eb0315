"""Sealing by production's own command: what it compiles goes into the cache too, and is proven to be found again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from tuner.handoff import production, sealing
from tuner.handoff.own_command import CommandRun, run_command
from tuner.handoff.verify import why_missed
from tuner.knobs import Config
from tuner.pipeline.context import Run
from tuner.pipeline.launches import emitted
from tuner.store.records import SealedCommand

__all__ = ["fill_by_command", "prove_by_command"]


def fill_by_command(run: Run, config: Config, cache: Path) -> CommandRun:
    """Run the command of `--seal-with` under what will be emitted, so that it adds what it compiles to `cache`. What
    the tuner sealed there is found by it, if its step is the same program, and stays."""
    run.status("seal", f"filling the cache: {run.options.seal_with}")
    return _run(run, config, "filling", sealing(cache))


def prove_by_command(run: Run, config: Config, cache: Path, cold: CommandRun, notices: list[str]) -> SealedCommand:
    """Run it again with the sealed cache, as production will: everything must be found. What isn't becomes a notice."""
    run.status("seal", f"loading the bundle: {run.options.seal_with}")
    warm = _run(run, config, "loading", {"JAX_ENABLE_COMPILATION_CACHE": None, **production(cache)})
    command = run.options.seal_with
    missed = [module for module in warm.modules if not module.hit]
    for found, when in ((cold, "first"), (warm, "second")):
        if found.code not in (0, None):
            notices.append(f"{command} failed with exit status {found.code} the {when} time (see {run.folder.logs})")
    if not warm.modules:
        notices.append(
            f"{command} looked for nothing in the sealed cache: it doesn't hand its environment on to jax, or switches "
            f"the cache or its messages off (see {run.folder.logs})"
        )
    elif missed:
        why = why_missed(cold.modules, missed)
        notices.append(f"{command}: {len(missed)} of {len(warm.modules)} compiles weren't found in the cache: {why}")
    return SealedCommand(
        command=command,
        code=warm.code,
        requests=len(warm.modules),
        hits=len(warm.modules) - len(missed),
        added=len({module.key for module in cold.modules if not module.hit}),
        cold_s=cold.seconds,
        warm_s=warm.seconds,
        modules=warm.modules,
    )


def _run(run: Run, config: Config, name: str, cache: Mapping[str, str | None]) -> CommandRun:
    return run_command(
        shlex.split(run.options.seal_with),
        {**emitted(run, config), **cache},
        environ=run.inherited,
        log=run.folder.logs / f"{run.sessions_started:03d}-own-command-{name}.log",
        limit_s=run.options.seal_s,
    )
