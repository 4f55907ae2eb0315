"""What a bundle says, as data: its manifest, and the settings for programs that read JSON."""

from __future__ import annotations

import msgspec

from tuner.machine.environment import Environment
from tuner.measure.objective import BlockForm, Objective
from tuner.measure.types import Estimate, Tolerance, Verdict
from tuner.protocol.messages import CacheModule, OptionValue

__all__ = ["BEST_SCHEMA", "MANIFEST_SCHEMA", "VERSION", "Best", "Control", "FileDigest", "Manifest", "Options"]

VERSION = 1
MANIFEST_SCHEMA = "xla-tuner/bundle"
BEST_SCHEMA = "xla-tuner/best"


class FileDigest(msgspec.Struct, frozen=True, kw_only=True):
    """A file as it was written: SHA-256 in hex, size in bytes."""

    sha256: str
    size: int


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The whole config for one function: ``jax.jit(f, compiler_options=…)``, traced under these jax settings."""

    compiler_options: dict[str, OptionValue] = {}
    jax_config: dict[str, OptionValue] = {}


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """The default that a result was held against, and how.

    `argv`, `platform`, `knobs`: of the workload, as `Launch` takes them. `env`: changes to the environment, None:
    unset. `launch`: the command that started its processes on several hosts, "" for none. `margin`: the smallest gain
    that counted, on the log scale. `form`: how blocks were timed. `tolerances`,
    `numerics_steps`: of the numerics gate.
    """

    argv: tuple[str, ...] = ()
    platform: str | None = None
    knobs: dict[str, OptionValue] = {}
    env: dict[str, str | None] = {}
    launch: str = ""
    margin: float
    form: BlockForm
    numerics_steps: int
    tolerances: tuple[Tolerance, ...]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """``manifest.json``: what the bundle is for, what was found, and the digest of every other file by its path.

    `created`: seconds since the epoch. `settings`: what was found, by knob; `held`: what the user fixed for the run.
    `unset`: variables that must not be set. `inherited`: variables that were set while measuring and that the bundle
    leaves alone. `estimate`: the confirmed gain of the settings over fresh compiles, None if none could be computed;
    `sealed`: that of the one executable in the cache, None if it wasn't measured, and `sealed_note` says why.
    `control_ms`, `best_ms`: the values of `objective`, None if there is none. `cache`: whether the compiled step is in
    ``jax_cache``. The writer of the bundle sets `cache` and `files`. `number`: counts the bundles of workloads of this
    name in the store that it was sealed in. `first_program`: as in the baseline's record. `modules`: what a process
    that starts the workload looks for in the cache, with the parts of each key. `control`: what it takes to check all
    that again; None in older bundles.
    """

    schema: str = MANIFEST_SCHEMA
    v: int = VERSION
    created: float
    tuner: str
    run: str
    workload: str
    program: str
    environment: Environment
    settings: dict[str, str]
    held: dict[str, str]
    env: dict[str, str]
    unset: tuple[str, ...]
    inherited: dict[str, str]
    verdict: Verdict
    estimate: Estimate | None
    control_ms: float | None
    best_ms: float | None
    objective: Objective = Objective()
    sealed: Estimate | None = None
    sealed_note: str = ""
    cache: bool = False
    notices: tuple[str, ...] = ()
    number: int = 0
    first_program: str = ""
    modules: tuple[CacheModule, ...] = ()
    control: Control | None = None
    pgle: str = ""
    files: dict[str, FileDigest] = {}


class Best(msgspec.Struct, frozen=True, kw_only=True):
    """``best.json``: the settings in every form.

    `env`/`unset`: changes to the environment. `options`: the same for one function alone; None if some of the settings
    only act on a whole process. `workload_knobs`: arguments of the workload's build().
    """

    schema: str = BEST_SCHEMA
    v: int = VERSION
    verdict: Verdict
    speedup: float | None
    settings: dict[str, str]
    env: dict[str, str]
    unset: tuple[str, ...]
    options: Options | None
    workload_knobs: dict[str, OptionValue]
