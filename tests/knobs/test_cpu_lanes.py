"""Declared lanes are true: a setting compiles to the same code as an option and, in a new process, in XLA_FLAGS."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tuner.knobs import Config, Knob, environment, load_spaces, variant
from tuner.protocol.messages import Compiled, Variant
from tuner.session import Deadlines, Launch, LocalSession

pytestmark = pytest.mark.jax

SPACE = load_spaces(["cpu", "precision"])
WORKLOAD = Path(__file__).with_name("lanes_step.py")

# Settings whose effect shows in the fingerprint of the step, so that comparing it means something. The others act on
# library calls or threads alone, on other hardware, or only speed up compiling.
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
        "xla_cpu_prefer_vector_width",
        "xla_cpu_scheduler_type",
        "xla_reduce_window_rewrite_base_length",
    }
)
OPTION_KNOBS = [knob for knob in SPACE.knobs if knob.lane == "option" and "gpu" not in knob.name]


def alone(knob: Knob) -> Config:
    """The knob's first value, with what it requires."""
    return Config.of({knob.name: knob.values[1], **knob.requires})


class Codes:
    """Fingerprints of the step: option forms from one living process, environment forms from a new process each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._living: LocalSession | None = None

    def as_option(self, settings: Variant) -> Compiled:
        if self._living is None:
            self._living = self._session("living", {})
            self._living.start()
        (result,) = self._living.compile([settings]).results
        assert isinstance(result, Compiled), result
        return result

    def in_environment(self, env: Mapping[str, str | None]) -> Compiled:
        session = self._session(f"new-{len(list(self._folder.iterdir()))}", env)
        try:
            session.start()
            (result,) = session.compile([Variant(id="control")]).results
        finally:
            session.close()
        assert isinstance(result, Compiled), result
        return result

    def close(self) -> None:
        if self._living is not None:
            self._living.close()

    def _session(self, name: str, env: Mapping[str, str | None]) -> LocalSession:
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


@pytest.fixture(scope="module")
def codes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Codes]:
    made = Codes(tmp_path_factory.mktemp("lanes"))
    yield made
    made.close()


@pytest.mark.parametrize("knob", OPTION_KNOBS, ids=lambda knob: knob.name)
def test_an_option_knob_compiles_to_the_same_code_in_both_forms(codes: Codes, knob: Knob) -> None:
    config = alone(knob)
    option = codes.as_option(variant("option", config, SPACE))
    fresh = codes.in_environment(environment(config, SPACE, {}))
    assert option.code == fresh.code
    if knob.name in VISIBLE:
        without = config.drop(knob.name)
        assert option.code != codes.as_option(variant("without", without, SPACE)).code
