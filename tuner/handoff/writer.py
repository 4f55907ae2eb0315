"""Writes bundles: each whole or not at all, under the next free number, never changed afterwards."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tuner.errors import TunerError, UsageError
from tuner.handoff.bundle import CACHE_FOLDER, ENV_FILE, MANIFEST_FILE, PROFILE_FILE, Bundle, digest, load_bundle
from tuner.handoff.cache import production
from tuner.handoff.contents import Best, Manifest, Options
from tuner.handoff.dialects.docker import DOCKER
from tuner.handoff.dialects.documents import JSON
from tuner.handoff.dialects.shell import SHELL
from tuner.handoff.emission import content_of
from tuner.measure.types import Verdict
from tuner.protocol.messages import OptionValue
from tuner.store.disk import disk_error

__all__ = ["write_bundle"]


def write_bundle(
    root: Path,
    manifest: Manifest,
    *,
    options: Options | None = None,
    workload_knobs: Mapping[str, OptionValue] | None = None,
    profile: bytes | None = None,
    cache: Path | None = None,
) -> Bundle:
    """Write the next numbered bundle under `root` and return it; its folder appears whole or not at all.

    `manifest` holds the environment as it was confirmed; what loading the `cache` needs is added here, and its number
    becomes the next free one from there on. `options`: the config as compile options, None if some of it needs a whole
    process. `cache`: the folder that sealing filled. What was written is read back and compared. Raises ValueError if a
    verdict other than faster comes with settings, UsageError for a variable that no env-file can carry, TunerError if
    `cache` holds nothing, StoreError if the disk refuses.
    """
    if manifest.verdict is not Verdict.FASTER and manifest.settings:
        raise ValueError(f"a bundle whose verdict is {manifest.verdict.value} must hold the default")
    entries = {} if cache is None else _entries(cache)
    env = {**manifest.env, **(production() if entries else {})}
    manifest = msgspec.structs.replace(manifest, env=env, cache=bool(entries), **_finite(manifest))
    best = Best(
        verdict=manifest.verdict,
        speedup=manifest.estimate.speedup if manifest.estimate else None,
        settings=manifest.settings,
        env=env,
        unset=manifest.unset,
        options=options,
        workload_knobs=dict(workload_knobs or {}),
    )
    try:
        with _reserved(root, manifest.number) as (folder, final):
            manifest = msgspec.structs.replace(manifest, number=int(final.name))
            cached = final / CACHE_FOLDER if manifest.cache else None
            content = content_of(manifest, best, cache=cached)
            texts = {}
            try:
                texts[ENV_FILE] = DOCKER.write(content, ENV_FILE)
            except UsageError as error:
                notice = f"no {ENV_FILE}: {error.where}: {error.what}"
                manifest = msgspec.structs.replace(manifest, notices=(*manifest.notices, notice))
                content = content_of(manifest, best, cache=cached)
            texts |= {dialect.file: dialect.write(content, dialect.file) for dialect in (SHELL, JSON)}
            contents = {name: text.encode(errors="surrogateescape") for name, text in texts.items()}
            if profile is not None:
                contents[PROFILE_FILE] = profile
            contents |= {f"{CACHE_FOLDER}/{name}": path.read_bytes() for name, path in entries.items()}
            files = {name: digest(data) for name, data in sorted(contents.items())}
            manifest = msgspec.structs.replace(manifest, files=files)
            for name, data in {**contents, MANIFEST_FILE: _json(manifest)}.items():
                _write(folder / name, data)
            best = load_bundle(folder).best
    except OSError as error:
        raise disk_error(error, Path(error.filename) if isinstance(error.filename, str) else root) from error
    return Bundle(path=final, manifest=manifest, best=best)


def _entries(cache: Path) -> dict[str, Path]:
    """The files of `cache` by their path in it."""
    found = {path.relative_to(cache).as_posix(): path for path in sorted(cache.rglob("*")) if path.is_file()}
    if not found:
        raise TunerError(
            "the cache to be sealed holds nothing",
            where=str(cache),
            next="look into the log of the session that should have filled it",
        )
    return found


@contextlib.contextmanager
def _reserved(root: Path, least: int) -> Iterator[tuple[Path, Path]]:
    """A folder to write in, which gets its number as name at the end. The next free number from `least` on is
    taken, by whoever is first to make the hidden folder of that number; it is removed if the writing fails."""
    root = root.absolute()
    root.mkdir(parents=True, exist_ok=True)
    for number in range(max(1, least), 10_000):
        final, folder = root / f"{number:04d}", root / f".{number:04d}.part"
        try:
            if not final.exists():
                folder.mkdir()
        except FileExistsError:
            continue
        if not final.exists():
            break
        with contextlib.suppress(FileNotFoundError):
            folder.rmdir()  # another writer finished this number between the two looks
    else:
        raise TunerError("there are 9999 bundles here", where=str(root), next="remove those that are not in use")
    try:
        yield folder, final
        folder.rename(final)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    _sync(root)


def _write(path: Path, data: bytes) -> None:
    """A file that is on the disk when this returns, and that nobody changes by accident."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fchmod(file.fileno(), 0o444)
        os.fsync(file.fileno())
    _sync(path.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _json(value: Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def _finite(manifest: Manifest) -> dict[str, Any]:
    """The manifest's numbers without those that could not be computed: JSON knows no infinity."""
    estimate = manifest.estimate
    if estimate is not None and not all(map(math.isfinite, (estimate.gain, estimate.se, estimate.low, estimate.high))):
        estimate = None
    times = {"control_ms": manifest.control_ms, "best_ms": manifest.best_ms}
    finite = {name: ms if ms is not None and math.isfinite(ms) else None for name, ms in times.items()}
    return {"estimate": estimate, **finite}
