"""The event log: one JSON object a line, appended and on the disk before anything depends on it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TypeVar, cast

import msgspec

from tuner.errors import StoreError
from tuner.machine.lock import FileLock, Held
from tuner.store.disk import disk_error
from tuner.store.events import AnyEvent, Event
from tuner.store.lines import decode, encode

__all__ = ["EventLog", "parse", "read", "read_first"]

E = TypeVar("E", bound=Event)


class EventLog:
    """The one writer of an event file. Opening it reads what is there and continues its numbers.

    `notices` says what opening had to repair: a last line cut short by a killed writer (kept in
    ``<name>.partial-<seq>``) and a lock left by a dead process. Whoever opens the log passes them on. `append` may be
    called from any thread. Close it, or use it as a context manager.
    """

    def __init__(self, path: Path, *, command: str = "", clock: Callable[[], float] = time.time) -> None:
        """Open `path`, creating it if need be. `command` is what a second writer is told about this one.

        Raises StoreError if the disk doesn't allow it, another process writes the file, or a line is broken.
        """
        self.path = path
        self._clock = clock
        self._mutex = threading.Lock()
        self._notices: list[str] = []
        self._lock = FileLock(path.with_name(path.name + ".lock"), command=command)
        self._take_lock()
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            self._lock.release()
            raise disk_error(error, path) from error
        try:
            self._events, self._size = self._load()
        except BaseException:
            self.close()
            raise

    @property
    def events(self) -> tuple[AnyEvent, ...]:
        """Everything in the log, oldest first."""
        return tuple(self._events)

    @property
    def notices(self) -> tuple[str, ...]:
        return tuple(self._notices)

    def append(self, event: E) -> E:
        """Write `event` with its number and time; when this returns it is on the disk.

        Raises StoreError if the disk refuses; the log is then as it was before.
        """
        with self._mutex:
            number, size = len(self._events), self._size
            stamped = msgspec.structs.replace(event, seq=number, time=self._clock())
            line = encode(cast(AnyEvent, stamped))
            try:
                self._write(line)
                self._events.append(cast(AnyEvent, stamped))
                self._size += len(line)
            except BaseException as error:  # also Ctrl-C: half a line must not stay
                del self._events[number:]
                self._size = size
                os.ftruncate(self._fd, size)
                if isinstance(error, OSError):
                    raise disk_error(error, self.path) from error
                raise
        return stamped

    def close(self) -> None:
        """Close the file and let others write it. May be called twice."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)
            self._lock.release()

    def __enter__(self) -> EventLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take_lock(self) -> None:
        try:
            left = self._lock.acquire()
        except Held as held:
            raise StoreError(
                f"this run is being written by {held.by or 'another process'}",
                where=str(self.path),
                next="wait until it ends, or start another run with --fresh",
            ) from None
        except OSError as error:
            raise disk_error(error, self._lock.path) from error
        if left is not None:
            self._notices.append(f"{self.path.name}: took over the lock of {left}, which ended without releasing it")

    def _load(self) -> tuple[list[AnyEvent], int]:
        try:
            data = self.path.read_bytes()
            events, end = parse(data, self.path)
            if end < len(data):
                aside = self.path.with_name(f"{self.path.name}.partial-{len(events)}")
                aside.write_bytes(data[end:])
                os.ftruncate(self._fd, end)
                self._notices.append(
                    f"{self.path.name}: the last line was cut short by a writer that was killed; "
                    f"its {len(data) - end} bytes are kept in {aside.name}"
                )
            _sync_folder(self.path.parent)
        except OSError as error:
            raise disk_error(error, self.path) from error
        return events, end

    def _write(self, line: bytes) -> None:
        while line:
            line = line[os.write(self._fd, line) :]
        os.fsync(self._fd)


def read(path: Path) -> list[AnyEvent]:
    """All whole events of a log that may be written at this moment.

    Raises StoreError naming file and line if one is broken, or if the file can't be read.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise disk_error(error, path) from error
    return parse(data, path)[0]


def read_first(path: Path) -> AnyEvent | None:
    """The first event of a log; None if it has none yet or isn't there."""
    try:
        with path.open("rb") as file:
            line = file.readline()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise disk_error(error, path) from error
    events, _ = parse(line, path)
    return events[0] if events else None


def parse(data: bytes, path: Path) -> tuple[list[AnyEvent], int]:
    """The events of all lines of `data` that have an end, and where the last of these ends.

    Raises StoreError naming `path` and the line if one is broken.
    """
    end = data.rfind(b"\n") + 1
    events: list[AnyEvent] = []
    for number, line in enumerate(data[:end].split(b"\n")[:-1]):
        try:
            event = decode(line)
            if event.seq != number:
                raise StoreError(f"event {event.seq} stands where event {number} belongs")
        except StoreError as error:
            raise StoreError(
                error.what,
                where=f"{path}:{number + 1}",
                next=error.next or "start another run with --fresh, or cut the file before this line to keep the rest",
            ) from error
        events.append(event)
    return events, end


def _sync_folder(folder: Path) -> None:
    """Make a new file's name last through a power failure, where folders can be synchronised."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError:
        pass  # some network and FUSE filesystems refuse it; the file's own fsync still holds
    finally:
        os.close(fd)
