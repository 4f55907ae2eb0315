"""What the operating system says about a file, as an error that tells the user what to do."""

from __future__ import annotations

import errno
from pathlib import Path

from tuner.errors import StoreError, StoreUnusable

__all__ = ["disk_error", "full"]

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_READ_ONLY = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_IN_THE_WAY = frozenset({errno.ENOTDIR, errno.EEXIST, errno.EISDIR})


def disk_error(error: OSError, path: Path) -> StoreError:
    """The StoreError for `error`, met at `path`: StoreUnusable where the user can make room or choose another place."""
    what = error.strerror or str(error)
    if error.errno in _FULL:
        return full(what, path)
    if error.errno in _READ_ONLY:
        return StoreUnusable(what, where=str(path), next="choose a folder that you may write: --store FOLDER")
    if error.errno in _IN_THE_WAY:
        return StoreUnusable(what, where=str(path), next="a file stands in the way: move it, or use --store FOLDER")
    return StoreError(what, where=str(path), next="look at the disk, or choose another folder: --store FOLDER")


def full(what: str, path: Path) -> StoreUnusable:
    """There is no room at `path`."""
    return StoreUnusable(
        what, where=str(path), next="free space there and run the same command again, or use --store FOLDER"
    )
