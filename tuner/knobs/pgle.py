"""The PGLE knob: how a profile is taken, and how what it does reaches a program in production.

A profile of instruction times belongs to the one config that it was taken under. It can't be written into a variable,
so that there are three ways to deliver it: in the executables of a warmed cache, as a file, or taken anew by jax.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from tuner.knobs.config import Config
from tuner.knobs.knob import UNSET

__all__ = [
    "DELIVERIES",
    "EXPECT_PGLE",
    "PGLE",
    "PROFILE_FLAG",
    "Delivery",
    "Form",
    "Recipe",
    "delivered",
    "recipe",
    "recipe_of",
]

PGLE = "pgle"
"""The knob's name."""

EXPECT_PGLE = "JAX_COMPILATION_CACHE_EXPECT_PGLE"
"""Makes jax look for executables made with a profile; what it doesn't find it compiles without command buffers."""

PROFILE_FLAG = "xla_gpu_pgle_profile_file_or_directory_path"

Form = Literal["cache", "file", "auto"]

DELIVERIES: tuple[Form, ...] = ("cache", "file", "auto")
"""How a profile is delivered: cache, file, or auto (by jax itself, while the program runs its first steps)."""

_RECIPE = re.compile(r"([1-9]\d{0,3})x(\d{1,3})")


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """Trace `runs` steps, and take that percentile of each instruction's times."""

    runs: int
    percentile: int


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """`path`: of the profile's file, where `form` is "file"."""

    form: Form = "cache"
    path: str = ""


def recipe(text: str) -> Recipe | None:
    """The recipe that a value such as "3x90" stands for; None if it is none."""
    match = _RECIPE.fullmatch(text)
    if match is None or int(match[2]) > 100:
        return None
    return Recipe(runs=int(match[1]), percentile=int(match[2]))


def recipe_of(config: Config) -> Recipe | None:
    """How `config`'s profile is taken; None if it has none."""
    value = config.get(PGLE)
    return None if value == UNSET else recipe(value)


def delivered(value: str, delivery: Delivery) -> tuple[dict[str, str], dict[str, str]]:
    """(variables, XLA flags) under which a program runs with the profile that `value` says how to take."""
    found = recipe(value)
    if found is None:
        raise ValueError(f"{value!r} says not how a profile is taken")
    match delivery.form:
        case "cache":
            return {EXPECT_PGLE: "true"}, {}
        case "file":
            return {}, {PROFILE_FLAG: delivery.path}
        case "auto":
            return {
                "JAX_ENABLE_PGLE": "true",
                "JAX_PGLE_PROFILING_RUNS": str(found.runs),
                "JAX_PGLE_AGGREGATION_PERCENTILE": str(found.percentile),
            }, {}
