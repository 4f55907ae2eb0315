"""Checks of what was tuned: the compilation cache's settings, and whether a workload's result fits here."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.handoff.doctor.facts import Facts
from tuner.handoff.doctor.finding import Finding, fail, ok, warn

__all__ = ["cache", "workload"]


def cache(facts: Facts) -> Iterator[Finding]:
    """JAX's persistent compilation cache, as a program started here would use it."""
    found = facts.checkup.cache
    if not found:
        return
    folder = found.get("jax_compilation_cache_dir", "None")
    if found.get("jax_enable_compilation_cache") != "True":
        yield warn(
            "cache", "is switched off, so a sealed step will be compiled anew", "unset JAX_ENABLE_COMPILATION_CACHE"
        )
        return
    if folder in ("None", ""):
        yield ok("cache", "no folder is set: every process compiles anew; a bundle's files set its own")
        return
    problems = 0
    if found.get("jax_compilation_cache_max_size", "-1") != "-1" and "filelock" not in facts.checkup.packages:
        problems += 1
        yield warn(
            "cache",
            "has a size limit, for which jax needs the package filelock: nothing is kept",
            f"{facts.python} -m pip install filelock, or unset JAX_COMPILATION_CACHE_MAX_SIZE",
        )
    caches = found.get("jax_persistent_cache_enable_xla_caches", "")
    if caches not in ("none", "") and (facts.checkup.jax.startswith("0.10.") or caches == "all"):
        problems += 1
        yield warn(
            "cache",
            f"under jax {facts.checkup.jax} the folder's path is in the key: copied or mounted elsewhere it never hits",
            "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES=none",
        )
    least_s = float(found.get("jax_persistent_cache_min_compile_time_secs", "1") or 1)
    if least_s > 0:
        problems += 1
        yield warn(
            "cache",
            f"in {folder}; what compiles in under {least_s:g} s is not kept",
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0",
        )
    if not problems:
        yield ok("cache", f"in {folder}, everything is kept")


def workload(facts: Facts) -> Iterator[Finding]:
    """The file, and whether what is known of it can be used here."""
    fact = facts.workload
    if fact is None:
        return
    if fact.trouble:
        yield fail("workload", f"{fact.path}: {fact.trouble}", fact.next or "correct the file")
        return
    yield ok("workload", f"{fact.path} can be read")
    target = fact.target
    if target is None or target.bundle is None:
        yield warn("result", target.why if target else "none", f"tune {fact.path}")
        return
    manifest = target.bundle.manifest
    run = f"run {manifest.run}, {manifest.verdict.value}"
    if target.unlike:
        yield warn("result", f"{run}: of another place: {target.differs}", f"tune {fact.path}")
    elif target.edited:
        yield warn("result", f"{run}: the file has changed since", f"tune {fact.path}")
    else:
        yield ok("result", f"{run}, fits this machine")
    there, here = manifest.environment.context.get("zstandard"), "zstandard" in facts.checkup.packages
    if target.bundle.cache is not None and there and facts.checkup.jax and (there == "yes") != here:
        was, do = ("was", "install") if there == "yes" else ("was not", "uninstall")
        yield warn(
            "result",
            f"zstandard {was} installed where the step was sealed: it will not be found in the cache",
            f"{facts.python} -m pip {do} zstandard",
        )
