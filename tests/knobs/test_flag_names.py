"""The installed jaxlib knows what the shipped spaces name: every flag, every value, as an option and in XLA_FLAGS.

One proto holds the flags of all platforms, so a CPU build answers for the GPU's too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import pytest

from tuner.knobs import UNSET, Knob, load_spaces, typed, version_in
from tuner.protocol import xla_flags
from tuner.session import Deadlines, Launch, LocalSession

pytestmark = pytest.mark.jax

VERSION = metadata.version("jax")
WORKLOAD = Path(__file__).with_name("lanes_step.py")
FLAGS = [
    knob
    for knob in load_spaces(["cpu", "gpu", "precision"]).knobs
    if knob.carrier == "xla_flag" and (knob.when.jax is None or version_in(VERSION, knob.when.jax))
]
# Names that some release within a knob's range lacks: the probe drops them there.
COME_AND_GO = frozenset({"xla_llvm_force_inline_before_split"})


def session(folder: Path, name: str, env: Mapping[str, str | None]) -> LocalSession:
    launch = Launch(
        name=name,
        role="probe",
        workload=WORKLOAD,
        log=folder / f"{name}.log",
        python=sys.executable,
        env={"XLA_FLAGS": None, **env},
        platform="cpu",
    )
    return LocalSession(launch, environ=os.environ, deadlines=Deadlines())


def name_here(knob: Knob, types: Mapping[str, str | None]) -> str | None:
    return next((name for name in (knob.name, *knob.aliases) if types.get(name) is not None), None)


def test_every_flag_and_value_is_known_in_both_forms(tmp_path: Path) -> None:
    living = session(tmp_path, "living", {})
    try:
        living.start()
        types = living.probe([name for knob in FLAGS for name in (knob.name, *knob.aliases)]).types
        names = {knob.name: name_here(knob, types) for knob in FLAGS}
        unknown = {name for name, here in names.items() if here is None}
        assert unknown <= COME_AND_GO
        known = [(here, knob) for knob in FLAGS if (here := names[knob.name]) is not None]
        asked = {here: tuple(typed(k.type, v) for v in k.values if v != UNSET) for here, k in known}
        assert not {name: wrong for name, wrong in living.probe([], asked).bad_values.items() if wrong}
    finally:
        living.close()
    for place in range(max(len(knob.values) for _, knob in known) - 1):
        flags = [
            xla_flags.Flag(name=here, value=values[min(place, len(values) - 1)])
            for here, knob in known
            if (values := [v for v in knob.values if v != UNSET])
        ]
        child = session(tmp_path, f"flags-{place}", {"XLA_FLAGS": xla_flags.render(flags)})
        try:
            child.start()  # an unknown name or a bad value would end it
        finally:
            child.close()
