"""A rank's place, and its share of a host's devices."""

from __future__ import annotations

import socket

import pytest

from tuner.protocol.failure import FailureClass
from tuner.protocol.messages import Gang
from tuner.worker.failures import Refused
from tuner.worker.join import address, divided, place_of


def gang(seat: int, neighbours: int, *, divide_cpu: bool = False) -> Gang:
    return Gang(rank=seat, size=8, coordinator="", seat=seat, neighbours=neighbours, divide_cpu=divide_cpu)


@pytest.mark.parametrize(
    ("told", "environ", "place"),
    [
        ("1/4", {}, (1, 4)),
        ("launched", {"SLURM_PROCID": "3", "SLURM_NTASKS": "8"}, (3, 8)),
        ("launched", {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, (0, 2)),
        ("launched", {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "RANK": "7", "WORLD_SIZE": "9"}, (1, 2)),
    ],
)
def test_a_ranks_place_is_told_by_the_parent_or_the_launcher(
    told: str, environ: dict[str, str], place: tuple[int, int]
) -> None:
    assert place_of(told, environ) == place


def test_a_launcher_that_tells_nothing_is_refused() -> None:
    with pytest.raises(Refused, match="SLURM_PROCID") as caught:
        place_of("launched", {})
    assert caught.value.kind is FailureClass.PLATFORM


def test_gpus_are_divided_among_the_ranks_of_a_host() -> None:
    four = {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}
    assert [divided(gang(seat, 4), four)[1] for seat in range(4)] == [[0], [1], [2], [3]]
    assert [divided(gang(seat, 2), four)[1] for seat in range(2)] == [[0, 1], [2, 3]]


def test_a_rank_alone_on_its_host_takes_all_and_one_whose_launcher_divided_what_it_sees() -> None:
    assert divided(gang(0, 1), {"CUDA_VISIBLE_DEVICES": "0,1,2,3"})[1] is None
    assert divided(gang(1, 4), {"CUDA_VISIBLE_DEVICES": "2"})[1] is None


def test_devices_made_of_a_cpu_are_divided_where_we_start_the_ranks() -> None:
    flags = {"XLA_FLAGS": "--a=1 --xla_force_host_platform_device_count=8 --b=2", "CUDA_VISIBLE_DEVICES": ""}
    assert divided(gang(1, 4, divide_cpu=True), flags) == (
        {"XLA_FLAGS": "--a=1 --xla_force_host_platform_device_count=2 --b=2"},
        None,
    )
    assert divided(gang(1, 4), flags) == ({}, None)
    count = {"JAX_NUM_CPU_DEVICES": "8", "CUDA_VISIBLE_DEVICES": ""}
    assert divided(gang(1, 8, divide_cpu=True), count) == ({"JAX_NUM_CPU_DEVICES": "1"}, None)


def test_an_address_can_be_listened_on() -> None:
    host, _, port = address(remote=False).rpartition(":")
    assert host == "127.0.0.1"
    socket.create_server((host, int(port))).close()
