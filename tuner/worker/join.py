"""How a worker becomes a rank of a gang: where it is, its share of the host's devices, and jax's distributed start."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tuner.protocol.failure import FailureClass
from tuner.protocol.messages import Gang, Load
from tuner.worker.failures import Refused
from tuner.worker.gang import Member, Reporter, together

__all__ = ["RANK", "address", "divided", "join", "place_of"]

RANK = "TUNER_WORKER_RANK"
"""Environment variable that makes a worker one of a gang: "1/4" is rank 1 of 4, "launched" asks the launcher's own."""

_LAUNCHERS = (
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMIX_RANK", "PMIX_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("RANK", "WORLD_SIZE"),
)
_JOIN_S = 120
_FORCED = re.compile(r"(--xla_force_host_platform_device_count=)(\d+)")
_GPU_FILE = re.compile(r"nvidia\d+")
# What every rank must have alike, but for what launchers give each rank for itself.
_SHARED = ("XLA_", "JAX_", "NCCL_", "NVSHMEM_", "TORCH_SYMM_MEM_", "CUDA_")
_PER_RANK = frozenset(
    {"CUDA_VISIBLE_DEVICES", "JAX_PROCESS_ID", "JAX_LOCAL_DEVICE_IDS", "NCCL_HOSTID", "NCCL_DEBUG_FILE"}
)


def place_of(told: str, environ: Mapping[str, str]) -> tuple[int, int]:
    """(rank, size) from what the parent told, or from the launcher's variables. Raises Refused(PLATFORM)."""
    if told != "launched":
        rank, _, size = told.partition("/")
        return int(rank), int(size)
    for rank_name, size_name in _LAUNCHERS:
        if rank_name in environ and size_name in environ:
            return int(environ[rank_name]), int(environ[size_name])
    names = ", ".join(name for name, _ in _LAUNCHERS)
    raise Refused(FailureClass.PLATFORM, f"the launcher gives its processes no rank: none of {names} is set")


def address(*, remote: bool) -> str:
    """host:port at which a coordination service can be started here: a port that is free at this moment."""
    host = socket.getfqdn() if remote else "127.0.0.1"
    with socket.create_server(("" if remote else host, 0)) as server:
        return f"{host}:{server.getsockname()[1]}"


def divided(gang: Gang, environ: Mapping[str, str]) -> tuple[dict[str, str], list[int] | None]:
    """This rank's share of its host's devices: changes to the environment for those that XLA makes of a CPU, and the
    numbers of its GPUs (None: all that it sees).

    Ranks beside each other would each take every device. Where the launcher has given each its own already, a process
    sees fewer devices than there are ranks, or one; these are left alone.
    """
    changes: dict[str, str] = {}
    if gang.divide_cpu:
        flags, given = environ.get("XLA_FLAGS", ""), environ.get("JAX_NUM_CPU_DEVICES", "")
        if found := _FORCED.search(flags):
            share = max(1, int(found[2]) // gang.neighbours)
            changes["XLA_FLAGS"] = _FORCED.sub(rf"\g<1>{share}", flags)
        if given.isdecimal():
            changes["JAX_NUM_CPU_DEVICES"] = str(max(1, int(given) // gang.neighbours))
    count = _visible_gpus(environ)
    if gang.neighbours == 1 or count < gang.neighbours:
        return changes, None
    share = count // gang.neighbours
    return changes, list(range(gang.seat * share, (gang.seat + 1) * share))


def join(request: Load, gang: Gang, *, report: Callable[[dict[str, Any]], None]) -> Member:
    """Import jax and start its distributed runtime; the ranks then compare what they are. `report` sends a line to the
    parent.

    This is who calls ``jax.distributed.initialize``; when the workload calls it too, that does nothing any more.
    Raises RankFailed(DIVERGED) if the ranks have other software, settings or another workload file.
    """
    for name, value in request.environ.items():
        if value is None:
            os.environ.pop(name, None)
        elif name not in request.pins or name not in os.environ:
            os.environ[name] = value
    changes, local_devices = divided(gang, os.environ)
    os.environ.update(changes)
    import jax

    from tuner.worker.describe import versions
    from tuner.worker.internals import coordination_client, let_this_rank_write

    jax.distributed.initialize(
        gang.coordinator,
        gang.size,
        gang.rank,
        local_device_ids=local_devices,
        initialization_timeout=_JOIN_S,
        heartbeat_timeout_seconds=gang.heartbeat_s,
    )
    jax.distributed.initialize = lambda *_args, **_kwargs: None
    folder = jax.config.values["jax_compilation_cache_dir"]
    if gang.fills_cache and gang.rank and folder:
        # jax writes entries in place: two ranks whose keys are equal, as on GPUs, would write into one file.
        jax.config.update("jax_compilation_cache_dir", str(Path(folder) / f"rank-{gang.rank}"))  # type: ignore[no-untyped-call]
        let_this_rank_write()
    member = Member(gang.rank, gang.size, coordination_client(), Reporter(report))
    member.reporter.begin("load")
    mine = {
        "environment": {n: v for n, v in os.environ.items() if n.startswith(_SHARED) and n not in _PER_RANK},
        "software": {**versions(), "interpreter": sys.version},
        "workload file": hashlib.sha256(Path(request.workload).read_bytes()).hexdigest()[:16],
    }
    together(member, "load", lambda: mine, same=lambda told: told)
    return member


def _visible_gpus(environ: Mapping[str, str]) -> int:
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([name for name in visible.split(",") if name.strip()])
    try:
        return sum(bool(_GPU_FILE.fullmatch(name)) for name in os.listdir("/dev"))
    except OSError:
        return 0
