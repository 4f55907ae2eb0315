"""Environment changes around JAX's persistent compilation cache: isolated in search, sealed, loaded in production.

Pure functions but for `gathered`; a value of None means that the variable must not be set. All names exist in jax 0.10
to 0.12.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tuner.knobs import EXPECT_PGLE

__all__ = ["CACHE_DIR", "gathered", "isolated", "loading", "production", "sealing"]

CACHE_DIR = "JAX_COMPILATION_CACHE_DIR"

# By default JAX points XLA's per-fusion autotune cache into the folder. Up to jax 0.10 that path is hashed into the
# key, so a folder that moves never hits; from 0.11 on "none" gives the same key as the default. A sealed executable
# needs no autotune results, and without them a step that misses is tuned afresh, as it would be without the bundle.
_MOVABLE = {"JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none"}


def isolated() -> dict[str, str | None]:
    """For sessions that measure: no executable and no autotuned kernel comes from, or goes to, an inherited cache.

    The folder is unset as well as the cache switched off, so that a workload that switches it on again finds none.
    With "expect PGLE" inherited, JAX would compile without command buffers even while the cache is off; with auto-PGLE
    it would trace and recompile the step while it is timed.
    """
    return {
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        CACHE_DIR: None,
        EXPECT_PGLE: None,
        "JAX_ENABLE_PGLE": None,
        **_MOVABLE,
    }


def sealing(folder: Path) -> dict[str, str | None]:
    """For the session that fills `folder`: every module is written, however quickly it compiled, and none is evicted.

    By default JAX keeps only what took a second to compile. A size limit would need the filelock package, and
    without it JAX writes nothing. It goes over `isolated` and what is sealed.
    """
    return {
        "JAX_ENABLE_COMPILATION_CACHE": "true",
        CACHE_DIR: str(folder.absolute()),
        "JAX_COMPILATION_CACHE_MAX_SIZE": "-1",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        **_MOVABLE,
    }


def gathered(folder: Path) -> None:
    """Put what the ranks of a gang left in folders of their own (``rank-N``) beside what rank 0 left. Of an entry that
    several wrote, rank 0's stays, else that of the lowest rank: equal keys mean that each can load it."""
    for own in sorted(folder.glob("rank-*"), key=lambda path: int(path.name.removeprefix("rank-"))):
        for entry in own.iterdir():
            if not (folder / entry.name).exists():
                entry.rename(folder / entry.name)
        shutil.rmtree(own)


def loading(folder: Path) -> dict[str, str | None]:
    """For sessions that measure what is sealed in `folder`: as `production`, and nothing is added to it."""
    return {
        "JAX_ENABLE_COMPILATION_CACHE": "true",
        **production(folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "1000000",
    }


def production(folder: Path | None = None) -> dict[str, str]:
    """For programs that load a sealed cache, whose `folder` is given where its place is known.

    The thresholds of `sealing` are not here: they decide what is written, and a hit needs none of them.
    """
    return dict(_MOVABLE) if folder is None else {**_MOVABLE, CACHE_DIR: str(folder.absolute())}
