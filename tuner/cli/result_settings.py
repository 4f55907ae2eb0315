"""The settings of an env-file or of a run's result, for commands that start one process under them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tuner.errors import UsageError

if TYPE_CHECKING:
    from tuner.protocol.messages import OptionValue

__all__ = ["settings_of"]


def settings_of(
    env_file: Path | None, run: str | None, store: str
) -> tuple[dict[str, str | None], dict[str, OptionValue]]:
    """Variables to change, and parameters of build() that belong to them; a run's sealed executables are loaded, and
    nothing is added to them. Raises UsageError."""
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
    cached = loading(bundle.cache) if bundle.cache is not None else {}
    return {**bundle.environment(), **cached}, dict(bundle.best.workload_knobs)
