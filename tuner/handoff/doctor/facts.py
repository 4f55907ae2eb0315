"""Everything that the doctor looks at, read once, in the order that disturbs least."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from tuner.errors import TunerError
from tuner.handoff.doctor.checkup import Checkup, ask
from tuner.handoff.target import Target, resolve
from tuner.machine import cgroup
from tuner.machine.devices import Device, DeviceState, open_devices
from tuner.machine.host import Host, network_filesystem, read_host
from tuner.machine.lock import lock_folder
from tuner.machine.process import Stamp, alive, read_stamp

__all__ = ["Facts", "FolderFact", "WorkloadFact", "gather"]


class FolderFact(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that is written to, or its nearest parent that exists. `trouble`: why it can't be written; `network`:
    the type of the network filesystem it lies on, "" if it is local."""

    purpose: str
    path: str
    free_bytes: int
    trouble: str = ""
    network: str = ""


class WorkloadFact(msgspec.Struct, frozen=True, kw_only=True):
    """`trouble`: why the file can't be tuned or its result can't be read, with `next`; else `target`, what is known of
    it."""

    path: str
    trouble: str = ""
    next: str = ""
    target: Target | None = None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """`env`: as inherited. `processes`: pid → command, of those on the devices that can be seen from here. `holders`:
    other tuners that hold a device. `clocksource`, `governor`: the kernel's words, "" if it has none. `throttled_s`:
    for how long the CPU quota has stopped this control group. `profiling_restricted`: the driver lets only
    administrators count what kernels do; None: not known. `shm_bytes`: size of /dev/shm.
    """

    env: dict[str, str]
    python: str
    checkup: Checkup
    host: Host
    devices: tuple[Device, ...] = ()
    states: tuple[DeviceState, ...] = ()
    processes: dict[int, str] = {}
    holders: tuple[Stamp, ...] = ()
    folders: tuple[FolderFact, ...] = ()
    clocksource: str = ""
    governor: str = ""
    throttled_s: float = 0.0
    profiling_restricted: bool | None = None
    administrator: bool = False
    shm_bytes: int | None = None
    workload: WorkloadFact | None = None


def gather(
    env: Mapping[str, str],
    *,
    python: str,
    store: str,
    workload: Path | None = None,
    inspect: Callable[[Path], object] | None = None,
    timeout_s: float = 60.0,
) -> Facts:
    """Read everything now. The devices come first: what uses them must be seen before a program of ours does.

    `inspect`: raises TunerError for a file that can't be tuned. `timeout_s`: for the program under `python`.
    """
    reader = open_devices(env)
    try:
        devices, states = reader.devices(), reader.states()
    finally:
        reader.close()
    processes = {pid: command for state in states for pid in state.pids if (command := _command(pid))}
    host = read_host()
    holders = _holders()
    checkup = ask(python, env, timeout_s=timeout_s)
    return Facts(
        env=dict(env),
        python=python,
        checkup=checkup,
        host=host,
        devices=devices,
        states=states,
        processes=processes,
        holders=holders,
        folders=tuple(_folder(purpose, path) for purpose, path in _folders(env, store, checkup)),
        clocksource=_text("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        governor=_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        throttled_s=cgroup.throttled_s() or 0.0,
        profiling_restricted=_profiling_restricted(),
        administrator=os.geteuid() == 0,
        shm_bytes=shutil.disk_usage("/dev/shm").total if os.path.isdir("/dev/shm") else None,
        workload=None if workload is None else _workload(workload, store, inspect, checkup, host),
    )


def _command(pid: int) -> str:
    """What started process `pid`; "" if it isn't seen from here (another container's, the host's)."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    return " ".join(filter(None, words))[:100]


def _holders() -> tuple[Stamp, ...]:
    stamps = []
    for file in sorted(lock_folder().glob("*.lock")):
        try:
            stamp = read_stamp(file.read_bytes())
        except OSError:
            continue
        if stamp is not None and alive(stamp):
            stamps.append(stamp)
    return tuple(stamps)


def _folders(env: Mapping[str, str], store: str, checkup: Checkup) -> list[tuple[str, Path]]:
    cache = env.get("JAX_COMPILATION_CACHE_DIR") or checkup.cache.get("jax_compilation_cache_dir", "")
    folders = [
        ("store", Path(".tuner") if "://" in store else Path(os.path.expanduser(store))),
        ("temporary", Path(tempfile.gettempdir())),
    ]
    if cache not in ("", "None") and "://" not in cache:
        folders.append(("cache", Path(os.path.expanduser(cache))))
    return folders


def _folder(purpose: str, path: Path) -> FolderFact:
    place = path.absolute()
    # os.path takes what may not be looked into for missing, where pathlib raises.
    while not os.path.exists(place) and place != place.parent:
        place = place.parent
    trouble = ""
    if not place.is_dir():
        trouble = f"{place} is a file"
    else:
        try:
            with tempfile.TemporaryFile(dir=place):
                pass
        except OSError as error:
            trouble = (error.strerror or str(error)).lower()
    return FolderFact(
        purpose=purpose,
        path=str(path),
        free_bytes=shutil.disk_usage(place).free,
        trouble=trouble,
        network=network_filesystem(place),
    )


def _profiling_restricted() -> bool | None:
    """What the NVIDIA driver's parameter RmProfilingAdminOnly says."""
    for line in _text("/proc/driver/nvidia/params").splitlines():
        name, _, value = line.partition(":")
        if name == "RmProfilingAdminOnly":
            return value.strip() == "1"
    return None


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _workload(
    path: Path,
    store: str,
    inspect: Callable[[Path], object] | None,
    checkup: Checkup,
    host: Host,
) -> WorkloadFact:
    seen = {"cpu": host.cpu, "cores": f"{host.usable_cores:g}", **checkup.packages}
    seen |= {name: version for name, version in (("jax", checkup.jax), ("jaxlib", checkup.jaxlib)) if version}
    if kinds := checkup.devices:
        seen |= {"platform": checkup.platform, "device_kind": kinds[0], "device_count": str(len(kinds))}
    try:
        if inspect is not None:
            inspect(path)
        return WorkloadFact(path=str(path), target=resolve(str(path), store=store, seen=seen))
    except TunerError as error:
        return WorkloadFact(path=str(path), trouble=error.what, next=error.next)
