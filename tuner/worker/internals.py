"""Everything that reaches into jax's and jaxlib's private parts, each with the versions it was checked on.

All of it was checked on jax 0.10.2, 0.11.2 and 0.12.0.1. Nothing else in the worker imports `jax._src`.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import jax
import jaxlib._hlo  # type: ignore[import-not-found]
from jax._src import compiler, config, core, distributed, pjit, xla_bridge
from jax._src.lax import lax
from jax._src.lib import _profiler

from tuner.protocol.cache_log import LOGGERS, LookUps
from tuner.protocol.messages import CacheModule

__all__ = [
    "BackendStart",
    "ProfilerBusy",
    "aggregate_profiles",
    "as_weak",
    "backend_errors",
    "cache_size",
    "canonical_hlo",
    "config_context",
    "coordination_client",
    "is_jitted",
    "jit_info",
    "let_this_rank_write",
    "rejit",
    "stored_as_guided",
    "switch_off_auto_pgle",
    "trace_profile",
    "under_trace",
    "unjitted",
    "watch_backend_start",
    "watch_cache_keys",
    "wrapped",
]


# --- jit ------------------------------------------------------------------------------------------------------------
# `PjitFunction` is a C++ type without a public name. jax sets `_fun` (what was jitted) and `_jit_info` (the arguments
# of jit, validated) on each instance.


def is_jitted(function: object) -> bool:
    """Whether `function` came out of `jax.jit` or `pjit`."""
    return hasattr(function, "_jit_info") and hasattr(function, "_fun")


def unjitted(function: Any) -> Callable[..., Any]:
    """The function that was jitted."""
    return function._fun  # type: ignore[no-any-return]


def jit_info(function: Any) -> Any:
    """The arguments of `jax.jit` behind `function`: `static_argnums`, `static_argnames`, `donate_argnums`,
    `donate_argnames` (resolved against each other by jax), shardings, layouts, `compiler_options_kvs`, …"""
    return function._jit_info


def rejit(function: Callable[..., Any], info: Any, compiler_options: Mapping[str, Any]) -> Any:
    """`function` jitted as `info` says, its compiler options overridden by `compiler_options`.

    The same object that ``jax.jit(function, …, compiler_options=…)`` gives, through the last step of it: the public way
    would shift donated positions that jax has already shifted past the static ones.
    """
    options = dict(info.compiler_options_kvs) | dict(compiler_options)
    return pjit._cpp_pjit(function, info._replace(compiler_options_kvs=tuple(options.items())))


def cache_size(function: Any) -> int:
    """How many call signatures a jitted function holds executables for."""
    return int(function._cache_size())


def under_trace() -> bool:
    """Whether jax is tracing something in this thread."""
    return not core.trace_state_clean()


# --- arrays ---------------------------------------------------------------------------------------------------------


def as_weak(array: jax.Array) -> jax.Array:
    """`array` with a weakly typed aval, as Python scalars have; no public function gives one to a non-scalar."""
    weak: jax.Array = lax._convert_element_type(array, weak_type=True)
    return weak


# --- configuration --------------------------------------------------------------------------------------------------


def config_context(name: str, value: Any) -> AbstractContextManager[Any]:
    """A context in which the configuration option `name` has `value` for this thread.

    Raises KeyError for an unknown name, NotImplementedError for an option that only has one value for the process,
    ValueError for a value that doesn't fit.
    """
    if name not in config.config_states:
        if name in jax.config.values:
            raise NotImplementedError(name)
        raise KeyError(name)
    context: AbstractContextManager[Any] = config.config_states[name](value)
    return context


# --- back-end start -------------------------------------------------------------------------------------------------


@dataclass
class BackendStart:
    """When the devices were initialised: the text of XLA_FLAGS that XLA read then, and how long it took."""

    xla_flags: str | None = None
    seconds: float = 0.0


def watch_backend_start() -> BackendStart:
    """Note the text of XLA_FLAGS at the moment the first back end starts. XLA reads it then, once."""
    start = BackendStart()
    original = xla_bridge._init_backend

    def watched(platform: str) -> Any:
        if start.xla_flags is None:
            start.xla_flags = os.environ.get("XLA_FLAGS", "")
        begin = time.perf_counter()
        try:
            return original(platform)
        finally:
            start.seconds += time.perf_counter() - begin

    xla_bridge._init_backend = watched
    return start


def backend_errors() -> dict[str, str]:
    """Platforms that jax tried and could not start, with the reason."""
    return dict(xla_bridge._backend_errors)


# --- persistent compilation cache -----------------------------------------------------------------------------------


def watch_cache_keys(told: Callable[[CacheModule], None]) -> None:
    """From here on call `told` with each module that is looked for in the persistent cache, in the compiling thread."""
    own = threading.local()

    def watched(record: logging.LogRecord) -> None:
        reader: LookUps = vars(own).setdefault("reader", LookUps())
        if (module := reader.read(record.getMessage())) is not None:
            told(module)

    for name in LOGGERS:
        logger = logging.getLogger(name)
        shown = logger.getEffectiveLevel()
        logger.setLevel(min(shown, logging.DEBUG))

        def seen(record: logging.LogRecord, shown: int = shown) -> bool:
            watched(record)
            return record.levelno >= shown  # what nobody asked to see stays unseen

        logger.addFilter(seen)


def let_this_rank_write() -> None:
    """From here on this process writes what it compiles into the persistent cache, though its rank isn't 0. jax lets
    rank 0 write alone; but on a CPU each rank has keys of its own, so that the others would never find anything."""
    write = compiler._cache_write

    def written(*args: Any, **kwargs: Any) -> None:
        rank = distributed.global_state.process_id
        distributed.global_state.process_id = 0
        try:
            write(*args, **kwargs)
        finally:
            distributed.global_state.process_id = rank

    compiler._cache_write = written


# --- several processes ----------------------------------------------------------------------------------------------


def coordination_client() -> Any:
    """The client of the coordination service, after ``jax.distributed.initialize``: `key_value_set(key, text)`,
    `blocking_key_value_get(key, timeout_ms)`, `key_value_delete(key)`."""
    return distributed.global_state.client


# --- what the compiler made -----------------------------------------------------------------------------------------


def canonical_hlo(executable: Any) -> tuple[str, ...]:
    """Canonical text of each optimised module, without metadata, with all constants and backend configs in full."""
    options = jaxlib._hlo.HloPrintOptions.canonical()
    options.print_metadata = False
    options.print_large_constants = True
    options.print_backend_config = True
    return tuple(module.to_string(options) for module in executable.hlo_modules())


def wrapped(executable: Any) -> dict[str, str]:
    """The instruction that each asynchronous start was made of, by the start's name. The text shows the start alone;
    traces and profiles name what it wraps. Kinds of starts that wrap nothing (`copy-start`) aren't here."""
    found = {}
    for module in executable.hlo_modules():
        for computation in module.computations():
            for instruction in computation.instructions():
                if instruction.opcode != jaxlib._hlo.HloOpcode.kAsyncStart:
                    continue
                inner = instruction.async_wrapped_root()
                if inner is not None:
                    found[instruction.name] = inner.name
    return found


# --- profile-guided latency estimates -------------------------------------------------------------------------------
# The same calls as jax's own auto-PGLE (`jax._src.profiler.PGLEProfiler`).


class ProfilerBusy(Exception):
    """A profiler session could not be started."""


def stored_as_guided(profile: bool) -> AbstractContextManager[Any]:
    """Compile within it as auto-PGLE does with a profile at hand, where a persistent cache is expected to hold
    executables that were made with one: they are kept under the key that ``JAX_COMPILATION_CACHE_EXPECT_PGLE`` looks
    for. Without a profile, or where none is expected, it changes nothing."""
    if not profile or not config.compilation_cache_expect_pgle.value:
        return nullcontext()
    context: AbstractContextManager[Any] = config.enable_pgle(True)
    return context


def switch_off_auto_pgle() -> bool:
    """Switch off auto-PGLE unless the environment asks for it; True if the program itself had switched it on. It would
    trace and recompile the step while it is timed."""
    asked = os.environ.get("JAX_ENABLE_PGLE", "").lower() in ("1", "true", "yes", "on", "y", "t")
    if asked or not config.enable_pgle.value:
        return False
    jax.config.update("jax_enable_pgle", False)  # type: ignore[no-untyped-call]
    return True


def trace_profile(run: Callable[[], None]) -> bytes:
    """Trace `run` in a profiler session of its own and convert the trace; b"" if there was nothing to convert. Raises
    ProfilerBusy if there is another session."""
    options = _profiler.ProfileOptions()
    options.enable_hlo_proto = True
    options.raise_error_on_start_failure = True
    session = _profiler.ProfilerSession(options)
    try:
        run()
    finally:
        space = _stopped(session)
    return bytes(_profiler.get_fdo_profile(space))


def _stopped(session: Any) -> Any:
    """What `session` saw. That it never started is told here only."""
    try:
        return session.stop()
    except Exception as error:
        raise ProfilerBusy(str(error)) from error


def aggregate_profiles(profiles: list[bytes], percentile: int) -> bytes:
    """One profile out of several: the `percentile` of each instruction's cost."""
    return bytes(_profiler.aggregate_profiled_instructions(profiles, percentile))
