"""Which combinations of settings are never tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.knobs.config import Config

if TYPE_CHECKING:
    from tuner.knobs.space import SearchSpace  # which checks its presets with this

__all__ = ["forbidden"]


def forbidden(config: Config, space: SearchSpace) -> str | None:
    """Why `config` is not to be tried: a combination that is forbidden, or a requirement that does not hold; else None.

    What a run holds fixed must be part of `config`.
    """
    settings = config.as_dict()
    for rule in space.forbid:
        if all(config.get(name) == value for name, value in rule.settings.items()):
            return f"{_and(rule.settings)} is forbidden: {rule.why}"
    for knob in space.knobs:
        if knob.name not in settings:
            continue
        missing = {n: v for n, v in knob.requires.items() if config.get(n) != v}
        if missing:
            return f"{knob.name}={settings[knob.name]} means nothing without {_and(missing)}"
    return None


def _and(settings: dict[str, str]) -> str:
    return " with ".join(f"{name}={value or '<empty>'}" for name, value in settings.items())
