"""The settings that a session and a variant carry, as canonical texts: what `FakeSession` and replays compare."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.knobs.pgle import PROFILE_FLAG
from tuner.protocol.messages import OptionValue, Variant

__all__ = ["canonical_text", "environment_settings", "variant_settings"]

# Environment variables of JAX that act on compilation, and the compile options of the same meaning.
_JAX_VARIABLES = {
    "JAX_DEFAULT_MATMUL_PRECISION": "jax_default_matmul_precision",
    "JAX_OPTIMIZATION_LEVEL": "jax_optimization_level",
    "JAX_MEMORY_FITTING_LEVEL": "jax_memory_fitting_level",
}
_AUTO_PGLE = "JAX_ENABLE_PGLE"
_LEVEL_OPTIONS = {"optimization_level": "jax_optimization_level", "memory_fitting_level": "jax_memory_fitting_level"}
_LEVELS = {"9": "O0", "19": "O1", "29": "O2", "39": "O3"}


def canonical_text(value: OptionValue) -> str:
    """One text for all spellings of a value: True, "True" and "true" are "true"; numbers as Python prints them."""
    text = str(value)
    return text.lower() if text in ("True", "False") else text


def environment_settings(env: Mapping[str, str | None]) -> tuple[dict[str, str], dict[str, str]]:
    """What `env` sets: (settings of the compiler, other variables), by name.

    The first holds the flags in XLA_FLAGS, the last of each name, and JAX's own compilation settings under their
    configuration names; a PGLE profile, of the process's own or from a file, as ``pgle=on``.
    """
    flags: dict[str, str] = {}
    variables: dict[str, str] = {}
    for variable, value in env.items():
        if value is None:
            continue
        if variable == "XLA_FLAGS":
            flags.update(_flag(token) for token in value.split() if token.startswith("--"))
            if flags.pop(PROFILE_FLAG, ""):
                flags["pgle"] = "on"
        elif variable == _AUTO_PGLE:
            flags |= {"pgle": "on"} if canonical_text(value) in ("true", "1", "yes", "on") else {}
        elif variable in _JAX_VARIABLES:
            flags[_JAX_VARIABLES[variable]] = canonical_text(value)
        else:
            variables[variable] = value
    return flags, variables


def variant_settings(variant: Variant) -> dict[str, str]:
    """What `variant` sets, by name; effort levels under their configuration name, a PGLE profile as ``pgle=on``."""
    settings: dict[str, str] = {}
    for name, value in {**variant.compiler_options, **variant.jax_config}.items():
        text = canonical_text(value)
        if name in _LEVEL_OPTIONS:
            name, text = _LEVEL_OPTIONS[name], _LEVELS.get(text, text)
        settings[name] = text
    if variant.profile is not None:
        settings["pgle"] = "on"
    return settings


def _flag(token: str) -> tuple[str, str]:
    name, equals, value = token.removeprefix("--").partition("=")
    return name, canonical_text(value) if equals else "true"
