"""Declared lanes are true: settings compile to the same code as options and, in a new process, in XLA_FLAGS.

All option-lane knobs of a space are set at once, so that one new process answers for all of them. Each knob whose
effect shows must show in that crowd too: taken out, the code changes. So a knob whose two forms differ would be seen.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path

import pytest

from tuner.knobs import Config, Knob, environment, load_spaces, variant
from tuner.protocol.messages import Compiled, Variant
from tuner.session import Deadlines, Launch, LocalSession

pytestmark = pytest.mark.jax

SPACE = load_spaces(["cpu", "precision"])
WORKLOAD = Path(__file__).with_name("lanes_step.py")
CROWDS = {name: frozenset(load_spaces([name]).names) for name in ("cpu", "precision")}

# What shows in the fingerprint of the step (x86-64). The others act on library calls or threads alone, on other steps
# or hardware, or only speed up compiling.
VISIBLE = frozenset(
    {
        "jax_default_matmul_precision",
        "xla_allow_excess_precision",
        "xla_backend_optimization_level",
        "xla_cpu_copy_insertion_use_region_analysis",
        "xla_cpu_enable_fast_math",
        "xla_cpu_enable_platform_dependent_math",
        "xla_cpu_experimental_ynn_fusion_type",
        "xla_cpu_fast_math_honor_infs",
        "xla_cpu_fast_math_honor_nans",
        "xla_cpu_scheduler_type",
        "xla_reduce_window_rewrite_base_length",
    }
)


class Codes:
    """Fingerprints of the step: option forms from one living process, environment forms from a new process each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._living = self._session({})
        self._living.start()

    def as_options(self, *configs: Config) -> list[str]:
        wanted = [variant(config.key, config, SPACE) for config in configs]
        return _codes(self._living.compile(wanted, threads=2).results)

    def as_raw_option(self, **options: str) -> str:
        return _codes(self._living.compile([Variant(id="raw", compiler_options=dict(options))]).results)[0]

    def in_environment(self, env: Mapping[str, str | None]) -> str:
        session = self._session(env)
        try:
            session.start()
            return _codes(session.compile([Variant(id="control")]).results)[0]
        finally:
            session.close()

    def known(self, knobs: list[Knob]) -> list[Knob]:
        """Those of the knobs that this jaxlib has."""
        types = self._living.probe([knob.name for knob in knobs if knob.carrier == "xla_flag"]).types
        return [knob for knob in knobs if knob.carrier != "xla_flag" or types[knob.name] is not None]

    def close(self) -> None:
        self._living.close()

    def _session(self, env: Mapping[str, str | None]) -> LocalSession:
        name = f"lanes-{len(list(self._folder.iterdir()))}"
        launch = Launch(
            name=name,
            role="probe",
            workload=WORKLOAD,
            log=self._folder / f"{name}.log",
            python=sys.executable,
            env={"XLA_FLAGS": None, **env},
            platform="cpu",
        )
        return LocalSession(launch, environ=os.environ, deadlines=Deadlines())


def _codes(results: object) -> list[str]:
    codes = []
    for result in results:  # type: ignore[attr-defined]
        assert isinstance(result, Compiled), result
        codes.append(result.code)
    return codes


def alone(knob: Knob, place: int = 1) -> Config:
    """The knob's value at this place, 1 is the first, with what it requires."""
    return Config.of({knob.name: knob.values[place], **knob.requires})


@pytest.fixture(scope="module")
def codes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Codes]:
    made = Codes(tmp_path_factory.mktemp("lanes"))
    yield made
    made.close()


@pytest.mark.parametrize("space", sorted(CROWDS))
def test_option_knobs_compile_to_the_same_code_in_both_forms(codes: Codes, space: str) -> None:
    offered = [k for k in SPACE.knobs if k.name in CROWDS[space] and k.lane == "option" and "gpu" not in k.name]
    knobs = codes.known(offered)
    crowd = reduce(Config.join, map(alone, knobs))
    as_options, *without = codes.as_options(crowd, *(crowd.drop(knob.name) for knob in knobs))
    if as_options != codes.in_environment(environment(crowd, SPACE, {})):
        liars = [
            knob.name
            for knob in knobs
            if codes.as_options(alone(knob)) != [codes.in_environment(environment(alone(knob), SPACE, {}))]
        ]
        pytest.fail(f"must be declared environment lane, the option compiles to other code than XLA_FLAGS: {liars}")
    shown = {knob.name for knob, code in zip(knobs, without, strict=True) if code != as_options}
    assert VISIBLE.intersection(crowd.names) <= shown


@pytest.mark.parametrize("space", sorted(CROWDS))
def test_their_last_values_do_too(codes: Codes, space: str) -> None:
    offered = [k for k in SPACE.knobs if k.name in CROWDS[space] and k.lane == "option" and "gpu" not in k.name]
    crowd = reduce(Config.join, (alone(knob, -1) for knob in codes.known(offered) if knob.carrier == "xla_flag"))
    assert codes.as_options(crowd) == [codes.in_environment(environment(crowd, SPACE, {}))]


def test_a_flag_whose_option_is_ignored_is_found_out(codes: Codes) -> None:
    """The target machine is fixed when the client starts: why xla_cpu_max_isa is environment lane."""
    assert SPACE.knob("xla_cpu_max_isa").lane == "environment"
    (control,) = codes.as_options(Config())
    assert codes.as_raw_option(xla_cpu_max_isa="SSE4_2") == control
    assert codes.in_environment({"XLA_FLAGS": "--xla_cpu_max_isa=SSE4_2"}) != control
