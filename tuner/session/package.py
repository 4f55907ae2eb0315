"""Packs the worker into one zip file that the user's interpreter runs: the protocol, the worker, nothing else."""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

__all__ = ["worker_zip"]

_MAIN = b'from tuner.worker.main import main\n\nif __name__ == "__main__":\n    main()\n'
_PARTS = ("protocol", "worker")
# The smallest time a zip entry can carry: equal sources give equal bytes, whenever they are packed.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def worker_zip(folder: Path | None = None) -> Path:
    """The worker's zip file in `folder` (made if missing), written only if it is not there yet.

    Without `folder` it goes to a folder of this user's own under the system's temporary folder, so that a command to
    repeat a failure still works after this process has ended. The file's name carries a hash of its contents.
    """
    contents = _contents()
    target = (folder or _own_temporary_folder()) / f"worker-{hashlib.sha256(contents).hexdigest()[:16]}.zip"
    if not (target.is_file() and target.read_bytes() == contents):
        target.parent.mkdir(parents=True, exist_ok=True)
        # Another process may start a worker from the same name right now: it must never see half a file.
        handle, name = tempfile.mkstemp(dir=target.parent, suffix=".part")
        with os.fdopen(handle, "wb") as file:
            file.write(contents)
        Path(name).chmod(0o644)
        os.replace(name, target)
    return target


@cache
def _contents() -> bytes:
    package = resources.files("tuner")
    files = {"__main__.py": _MAIN, "tuner/__init__.py": package.joinpath("__init__.py").read_bytes()}
    for part in _PARTS:
        files.update(_sources(package.joinpath(part), f"tuner/{part}"))
    buffer = io.BytesIO()
    # Stored, not compressed: compressed bytes differ between builds of zlib.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[name])
    return buffer.getvalue()


def _sources(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _sources(entry, f"{prefix}/{entry.name}")
        elif entry.name.endswith(".py"):
            yield f"{prefix}/{entry.name}", entry.read_bytes()


@cache
def _own_temporary_folder() -> Path:
    """A folder that only this user can write to: what stands in it is run, so nobody else may put it there."""
    folder = Path(tempfile.gettempdir()) / f"xla-tuner-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        if status.st_uid == os.getuid() and not status.st_mode & 0o022 and folder.is_dir() and not folder.is_symlink():
            return folder
    except OSError:
        pass  # a file of that name, or a read-only folder: take a fresh one instead
    return Path(tempfile.mkdtemp(prefix="xla-tuner-"))
