"""Where a knob applies, and the comparison of versions behind it."""

from __future__ import annotations

import msgspec
import pytest

from tuner.knobs import Facts, When, applies, load_spaces, version_in

H100 = Facts(platform="gpu", device_count=1, jax="0.11.2", capability="9.0")
CPU = Facts(platform="cpu", device_count=1, jax="0.10.2")


@pytest.mark.parametrize(
    ("when", "facts"),
    [
        (When(), CPU),
        (When(platform="gpu", min_devices=1, capability="8.0", jax=">=0.10"), H100),
        (When(capability="9.0"), H100),
        (When(jax=">=0.10,<0.11"), CPU),
    ],
)
def test_what_holds_has_no_reason_against_it(when: When, facts: Facts) -> None:
    assert applies(when, facts) is None


@pytest.mark.parametrize(
    ("when", "facts", "reason"),
    [
        (When(platform="gpu"), CPU, "needs platform gpu, this is cpu"),
        (When(min_devices=2), H100, "needs 2 devices, there is only 1"),
        (When(min_devices=8), msgspec.structs.replace(H100, device_count=4), "needs 8 devices, there are only 4"),
        (When(capability="10.0"), H100, "needs compute capability 10.0, these devices have 9.0"),
        (When(capability="8.0"), CPU, "needs compute capability 8.0, these devices report none"),
        (When(jax=">=0.12"), H100, "needs jax >=0.12, this is 0.11.2"),
    ],
)
def test_what_does_not_hold_is_named(when: When, facts: Facts, reason: str) -> None:
    assert applies(when, facts) == reason


@pytest.mark.parametrize(
    ("version", "wanted", "holds"),
    [
        ("0.10.2", ">=0.10,<0.12", True),
        ("0.12.0.1", "<0.12", False),
        ("0.12.0.1", ">0.12", True),
        ("0.12.0", "==0.12", True),
        ("0.9.1", "<0.10", True),
        ("0.11.0.dev20250101", "<0.11", True),
        ("0.11.0rc1", ">=0.11", False),
        ("0.11.0+cuda12", "==0.11.0", True),
        ("0.11.2", "!=0.11.2", False),
        ("0.11.2", " >= 0.11 , <= 0.11.2", True),
    ],
)
def test_version_ranges(version: str, wanted: str, holds: bool) -> None:
    assert version_in(version, wanted) is holds


@pytest.mark.parametrize(
    ("version", "wanted"), [("0.10", "~=0.10"), ("0.10", "0.10"), ("nightly", ">=0.10"), ("1", "")]
)
def test_what_is_no_version_or_range_is_refused(version: str, wanted: str) -> None:
    with pytest.raises(ValueError, match="is no version"):
        version_in(version, wanted)


@pytest.mark.parametrize(
    ("wanted", "there", "reason"),
    [
        ((), (), "the program has no collectives"),
        ((), ("all-gather",), None),
        ((), None, None),
        (("all-gather",), ("all-gather", "all-reduce"), None),
        (("all-gather",), None, None),
        (("all-gather", "all-to-all"), ("all-reduce",), "the program has no all-gather or all-to-all, only all-reduce"),
    ],
)
def test_a_knob_of_collectives_applies_where_the_program_has_them(
    wanted: tuple[str, ...], there: tuple[str, ...] | None, reason: str | None
) -> None:
    assert applies(When(collectives=wanted), msgspec.structs.replace(H100, collectives=there)) == reason


def test_a_gpu_knob_leaves_the_space_on_a_cpu() -> None:
    space = load_spaces(["cpu", "gpu", "precision"])
    live = [knob.name for knob in space.knobs if applies(knob.when, CPU) is None]
    assert "xla_cpu_multi_thread_eigen" in live
    assert not [name for name in live if "gpu" in name or name == "optimization_level"]
