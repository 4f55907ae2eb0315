from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tuner.errors import DeviceBusy, TunerError
from tuner.machine.devices import Device
from tuner.machine.lock import DeviceLock, FileLock, Held, device_names
from tuner.machine.process import this_process

HOLDER = """
import sys
from pathlib import Path
from tuner.machine.lock import DeviceLock
with DeviceLock(sys.argv[2:], folder=Path(sys.argv[1]), command="tune other.py"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "locks"


@pytest.fixture
def other(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds cpu and gpu-1."""
    command = [sys.executable, "-c", HOLDER, str(folder), "cpu", "gpu-1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


@pytest.mark.slow
def test_a_second_holder_is_told_who_holds_the_device(folder: Path, other: subprocess.Popen[bytes]) -> None:
    with pytest.raises(DeviceBusy, match=rf"cpu is in use by process {other.pid} \(tune other.py\), since 2") as caught:
        DeviceLock(["cpu"], folder=folder).acquire()
    assert caught.value.exit_code == 75
    assert f"kill {other.pid}" in caught.value.next


@pytest.mark.slow
def test_all_devices_are_taken_or_none(folder: Path, other: subprocess.Popen[bytes]) -> None:
    with pytest.raises(DeviceBusy, match="gpu-1"):
        DeviceLock(["gpu-0", "gpu-1", "gpu-2"], folder=folder).acquire()
    with DeviceLock(["gpu-0", "gpu-2"], folder=folder):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_holders_death_frees_its_devices(folder: Path, other: subprocess.Popen[bytes], end: signal.Signals) -> None:
    other.send_signal(end)
    other.wait()
    with DeviceLock(["cpu", "gpu-1"], folder=folder):
        pass


def test_leaving_the_block_frees_the_devices(folder: Path) -> None:
    for _ in range(2):
        with DeviceLock(["cpu"], folder=folder), pytest.raises(DeviceBusy, match=f"process {os.getpid()}"):
            DeviceLock(["cpu"], folder=folder).acquire()
    lock = DeviceLock(["cpu"], folder=folder)
    lock.release()


def test_every_user_may_lock(folder: Path) -> None:
    mask = os.umask(0o077)
    try:
        with DeviceLock(["cpu"], folder=folder):
            assert folder.stat().st_mode & 0o7777 == 0o1777
            assert (folder / "cpu.lock").stat().st_mode & 0o777 == 0o666
    finally:
        os.umask(mask)


@pytest.mark.slow
@pytest.mark.parametrize("close_fds", [True, False])
def test_a_child_process_does_not_keep_the_lock(folder: Path, close_fds: bool) -> None:
    lock = DeviceLock(["cpu"], folder=folder)
    lock.acquire()
    command = [sys.executable, "-S", "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, close_fds=close_fds) as child:
        lock.release()
        with DeviceLock(["cpu"], folder=folder):
            pass
        child.communicate(b"\n")


def test_odd_device_names_stay_inside_the_folder(folder: Path) -> None:
    with DeviceLock(["gpu-../x/y"], folder=folder):
        assert [p.name for p in folder.iterdir()] == ["gpu-.._x_y.lock"]


def test_a_folder_that_cannot_be_used_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "locks"):
        with pytest.raises(TunerError, match="can't be taken") as caught:
            DeviceLock(["cpu"], folder=folder).acquire()
        assert str(tmp_path / "file") in caught.value.where
        assert caught.value.next


def test_a_link_in_place_of_the_file_is_not_followed(folder: Path, tmp_path: Path) -> None:
    folder.mkdir()
    (tmp_path / "precious").write_text("keep")
    (folder / "cpu.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(TunerError):
        DeviceLock(["cpu"], folder=folder).acquire()
    assert (tmp_path / "precious").read_text() == "keep"


def test_the_stamp_of_one_who_died_is_handed_over(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    dead = msgspec.structs.replace(this_process("tune dead.py"), pid=2**22 + 1)
    path.write_bytes(msgspec.json.encode(dead))
    lock = FileLock(path)
    assert lock.acquire() == dead
    lock.release()
    assert path.read_bytes() == b""
    assert lock.acquire() is None
    with pytest.raises(Held, match=str(os.getpid())):
        lock.acquire()
    lock.release()


@pytest.mark.parametrize(("pid", "free"), [(2**22 + 1, True), (os.getpid(), False)], ids=["dead", "alive"])
def test_without_kernel_locks_the_holders_life_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pid: int, free: bool
) -> None:
    def unsupported(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "no locks here")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    path = tmp_path / "lock"
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(this_process(), pid=pid)))
    lock = FileLock(path)
    if free:
        assert lock.acquire() is not None
        lock.release()
    else:
        with pytest.raises(Held):
            lock.acquire()


def test_a_cpu_is_one_device_and_cards_go_by_uuid() -> None:
    cards = (Device(index=0, name="Card", uuid="GPU-a"), Device(index=3, name="Card"))
    assert device_names("cpu", cards) == ("cpu",)
    assert device_names("gpu", cards) == ("gpu-GPU-a", "gpu-3")
    assert device_names("gpu") == ("gpu",)
