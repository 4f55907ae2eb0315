"""The settings of an env-file or of a run's result, for commands that start one process under them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.errors import UsageError

if TYPE_CHECKING:
    from tuner.handoff.bundle import Bundle
    from tuner.protocol.messages import OptionValue

__all__ = ["settings_of"]


def settings_of(
    workload: Path, *, env_file: Path | None, run: str | None, store: str, quiet: bool
) -> tuple[dict[str, str | None], dict[str, OptionValue]]:
    """Variables to change, and parameters of build() that belong to them; a run's sealed executables are loaded, and
    nothing is added to them. Raises UsageError, also if the run tuned another workload than `workload`."""
    if env_file is not None and run is not None:
        raise UsageError("--env-file and --run say two things", next="leave one of them out")
    if env_file is not None:
        from tuner.handoff.dialects import parse_raw

        try:
            text = env_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not text in UTF-8"
            raise UsageError(f"can't be read: {why}", where=f"--env-file {env_file}") from error
        return dict(parse_raw(text, where=str(env_file))), {}
    if run is None:
        return {}, {}
    from tuner.handoff import loading
    from tuner.handoff.target import resolve

    found = resolve(run, store=store, cached=True)
    if found.bundle is None:
        raise UsageError(f"there are no settings to take: {found.why}", where=f"--run {run}")
    bundle = found.bundle
    _check_workload(workload, bundle, run, quiet=quiet)
    cached = loading(bundle.cache) if bundle.cache is not None else {}
    return {**bundle.environment(), **cached}, dict(bundle.best.workload_knobs)


def _check_workload(workload: Path, bundle: Bundle, run: str, *, quiet: bool) -> None:
    """What a run found is of its own workload: a file of that name. If it isn't the text that was tuned, that is
    said."""
    from tuner.store.events import RunStarted
    from tuner.store.log import read_first
    from tuner.store.sources import workload_digest

    tuned = bundle.manifest.workload
    if not workload.is_file():
        return  # that is told before anything else
    if workload.name != tuned:
        same = f"--env-file {shlex.quote(str(bundle.env_file))} takes its settings all the same"
        raise UsageError(
            f"it tuned {tuned}, not {workload.name}", where=f"--run {run}", next=same if bundle.env_file else ""
        )
    first = read_first(bundle.path.parent.parent / "events.jsonl")
    known = first.identity.get("workload") if isinstance(first, RunStarted) else None
    if known and known != workload_digest(workload) and not quiet:
        click.echo(f"tune: {workload} is not as {run} tuned it", err=True)
