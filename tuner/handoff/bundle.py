"""Bundle: the numbered, unchanging folder that production loads: env-files, settings as JSON, profile, warm cache."""

from __future__ import annotations

import glob
import hashlib
from pathlib import Path
from typing import TypeVar

import msgspec

from tuner.errors import TunerError
from tuner.handoff.cache import production
from tuner.handoff.contents import BEST_SCHEMA, MANIFEST_SCHEMA, VERSION, Best, FileDigest, Manifest
from tuner.handoff.dialects import DIALECTS
from tuner.store.folder import run_name

__all__ = [
    "CACHE_FOLDER",
    "ENV_FILE",
    "JSON_FILE",
    "MANIFEST_FILE",
    "PROFILE_FILE",
    "SHELL_FILE",
    "Bundle",
    "digest",
    "latest_bundle",
    "load_bundle",
    "next_number",
]

T = TypeVar("T")

MANIFEST_FILE = "manifest.json"
ENV_FILE = DIALECTS["docker"].file
SHELL_FILE = DIALECTS["shell"].file
JSON_FILE = DIALECTS["json"].file
PROFILE_FILE = "profile.pb"
CACHE_FOLDER = "jax_cache"


class _Head(msgspec.Struct):
    schema: str
    v: int


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle on the disk whose files are what was sealed."""

    path: Path
    manifest: Manifest
    best: Best

    @property
    def env_file(self) -> Path | None:
        """None if the environment holds a value that no raw env-file can carry."""
        return self._file(ENV_FILE)

    @property
    def shell_file(self) -> Path:
        return self.path / SHELL_FILE

    @property
    def json_file(self) -> Path:
        return self.path / JSON_FILE

    @property
    def profile(self) -> Path | None:
        return self._file(PROFILE_FILE)

    @property
    def cache(self) -> Path | None:
        return self.path / CACHE_FOLDER if self.manifest.cache else None

    def environment(self) -> dict[str, str | None]:
        """The changes to the environment of a program that loads this bundle where it lies; None: must be unset."""
        found = {} if self.cache is None else production(self.cache)
        return {**dict.fromkeys(self.manifest.unset), **self.manifest.env, **found}

    def _file(self, name: str) -> Path | None:
        return self.path / name if name in self.manifest.files else None


def load_bundle(path: Path, *, cached: bool = True) -> Bundle:
    """The bundle at `path`, once every file in it is found to be what was sealed.

    Entries that production has added to the cache since don't matter. `cached` False: the cache itself is not read,
    which can take seconds; JAX compiles what it can't load from there. Raises TunerError naming the file that is
    missing, differs or can't be read.
    """
    manifest = _read(path / MANIFEST_FILE, Manifest, MANIFEST_SCHEMA)
    for name, sealed in manifest.files.items():
        file = path / name
        if not cached and name.startswith(f"{CACHE_FOLDER}/"):
            continue
        try:
            found = digest(file.read_bytes())
        except OSError as error:
            raise _broken(file, f"can't be read: {error.strerror}") from error
        if found != sealed:
            raise _broken(file, "is not the file that was sealed")
    return Bundle(path=path, manifest=manifest, best=_read(path / JSON_FILE, Best, BEST_SCHEMA))


def latest_bundle(root: Path) -> Path | None:
    """The bundle under `root` with the highest number, None if there is none."""
    numbered = [path for path in root.glob("[0-9]*") if path.name.isdecimal() and (path / MANIFEST_FILE).is_file()]
    return max(numbered, key=lambda path: int(path.name), default=None)


def next_number(runs: Path, workload: str) -> int:
    """The number of the next bundle of workloads whose file is called `workload`, in the store whose runs lie in
    `runs`. Runs bear their workload's name, so that no file has to be read."""
    there = runs.glob(f"{glob.escape(run_name(workload))}-*/bundle/[0-9]*")
    return 1 + max((int(path.name) for path in there if path.name.isdecimal()), default=0)


def digest(data: bytes) -> FileDigest:
    """What the manifest says of a file that holds `data`."""
    return FileDigest(sha256=hashlib.sha256(data).hexdigest(), size=len(data))


def _read(path: Path, kind: type[T], schema: str) -> T:
    try:
        data = path.read_bytes()
        head = msgspec.json.decode(data, type=_Head)
        if head.schema != schema:
            raise _broken(path, f"has the schema {head.schema!r}, not {schema!r}")
        if head.v > VERSION:
            raise TunerError(
                f"has version {head.v}, this tune reads up to {VERSION}", where=str(path), next="use a newer tune"
            )
        return msgspec.json.decode(data, type=kind)
    except OSError as error:
        raise TunerError(
            f"no bundle: {error.strerror}", where=str(path), next=f"name the folder that holds {MANIFEST_FILE}"
        ) from error
    except msgspec.MsgspecError as error:
        raise _broken(path, f"can't be understood: {error}") from error


def _broken(path: Path, what: str) -> TunerError:
    return TunerError(what, where=str(path), next="copy the bundle again from where it was sealed, or seal it anew")
