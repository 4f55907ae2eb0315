"""Exclusive locks between processes: one on a file, and the device-wide one under which anything is timed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType

import msgspec

from tuner.errors import DeviceBusy, TunerError
from tuner.machine.devices import Device
from tuner.machine.process import Stamp, alive, read_stamp, this_process

__all__ = ["DeviceLock", "FileLock", "Held", "device_names", "lock_folder"]

# What flock(2) answers on filesystems that have no such locks (some Lustre, NFS and FUSE mounts).
_NO_FLOCK = frozenset({errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL})


class Held(Exception):
    """Somebody else has the file lock; `by` says who, None if the file doesn't tell."""

    def __init__(self, by: Stamp | None) -> None:
        super().__init__(str(by) if by else "another process")
        self.by = by


class FileLock:
    """An exclusive lock on a small file that names its holder.

    The kernel drops it when the holder dies, however that happens; where the filesystem has no such locks, a holder
    counts as dead when its pid and start time no longer exist. The file stays, empty, after a release: to delete it
    would let two processes lock two files of one name.
    """

    def __init__(self, path: Path, *, command: str = "", shared: bool = False) -> None:
        """`shared`: other users may take the lock too."""
        self.path = path
        self._command = command
        self._shared = shared
        self._fd = -1

    def acquire(self) -> Stamp | None:
        """Take the lock at once. Returns who held it last and died without releasing it, if anybody did.

        Raises Held if it is taken, OSError if the file can't be opened or written.
        """
        if self._fd >= 0:
            raise Held(read_stamp(self.path.read_bytes()))
        fd = _open(self.path, 0o666 if self._shared else 0o600)
        try:
            left = read_stamp(os.pread(fd, 65536, 0))
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in _NO_FLOCK:
                    raise Held(left) from None
                if left is not None and alive(left):
                    raise Held(left) from None
            left = read_stamp(os.pread(fd, 65536, 0))
            os.ftruncate(fd, 0)
            os.pwrite(fd, msgspec.json.encode(this_process(self._command)), 0)
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd
        return left

    def release(self) -> None:
        """Give the lock back; nothing happens if it isn't held."""
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        try:
            os.ftruncate(fd, 0)
            with contextlib.suppress(OSError):  # no such locks here
                fcntl.flock(fd, fcntl.LOCK_UN)  # closing isn't enough while a child that was just forked has a copy
        finally:
            os.close(fd)


def _open(path: Path, mode: int) -> int:
    """Open for reading and writing; a new file gets `mode`.

    Not with O_CREAT first: in a sticky folder Linux refuses that for another user's file (fs.protected_regular).
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    while True:
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            pass
        try:
            fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, mode)
        except FileExistsError:
            continue
        os.fchmod(fd, mode)  # the umask may have taken the others' bits
        return fd


class DeviceLock:
    """Holds every named device against other tuners of this machine, whoever runs them.

    `names` as from `device_names`. `folder` is machine-wide: by default `lock_folder`. Use it as a context manager, or
    `acquire` and `release`.
    """

    def __init__(self, names: Iterable[str], *, folder: Path | None = None, command: str = "") -> None:
        self.names = tuple(sorted(set(names)))
        self.folder = lock_folder() if folder is None else folder
        self._command = command
        self._held: list[FileLock] = []

    def acquire(self) -> None:
        """Lock all devices or none. Raises DeviceBusy, naming the holder, if one is taken."""
        self._make_folder()
        try:
            for name in self.names:
                path = self.folder / f"{re.sub(r'[^A-Za-z0-9._-]', '_', name)}.lock"
                lock = FileLock(path, command=self._command, shared=True)
                try:
                    lock.acquire()
                except Held as held:
                    raise _busy(name, held.by, lock.path) from None
                except OSError as error:
                    raise _unusable(error, lock.path) from error
                self._held.append(lock)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Give all devices back; nothing happens if none is held."""
        while self._held:
            self._held.pop().release()

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True)
        except FileExistsError:
            return
        except OSError as error:
            raise _unusable(error, self.folder) from error
        self.folder.chmod(0o1777)

    def __enter__(self) -> DeviceLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def lock_folder() -> Path:
    """Where this machine's device locks are: a folder in the system's temporary one that all may write to."""
    return Path(tempfile.gettempdir()) / "tuner-locks"


def device_names(platform: str, devices: Sequence[Device] = ()) -> tuple[str, ...]:
    """The lock names of what a run occupies: "cpu" on a CPU, else one a device, by UUID where there is one.

    An accelerator of which nothing is known (no management library) is locked as a whole, by its platform's name.
    """
    if platform == "cpu":
        return ("cpu",)
    return tuple(f"{platform}-{d.uuid or d.index}" for d in devices) or (platform,)


def _busy(name: str, by: Stamp | None, path: Path) -> DeviceBusy:
    return DeviceBusy(
        f"{name} is in use by {by or 'another process'}; two at once would time each other",
        where=str(path),
        next=f"wait until it ends, or end it: kill {by.pid}" if by else "wait until it ends",
    )


def _unusable(error: OSError, path: Path) -> TunerError:
    return TunerError(
        f"the device lock can't be taken: {error.strerror or error}",
        where=str(path),
        next=f"make {path} readable and writable for everybody, or delete it",
    )
