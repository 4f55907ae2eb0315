"""Reading a workload: finding build, its knobs, what it returns. Nothing is executed on a device."""

from __future__ import annotations

import functools
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from tuner.protocol.failure import FailureClass
from tuner.worker.failures import Refused
from tuner.worker.load import Environ, declared_knobs, has_build, knob_values
from tuner.worker.session import config_values
from tuner.worker.step import make_step
from tuner.worker.workload import ONLY, workload_of

X = np.ones((2, 3), np.float32)


def double(x: Any, by: int = 2) -> Any:
    return x * by


def _file(tmp_path: Path, text: str) -> str:
    path = tmp_path / "w.py"
    path.write_text(text)
    return str(path)


def test_build_is_found_at_top_level_without_running_the_file(tmp_path: Path) -> None:
    assert has_build(_file(tmp_path, "raise SystemExit\ndef build(): ..."))
    assert not has_build(_file(tmp_path, "class A:\n    def build(self): ..."))
    assert not has_build(_file(tmp_path, "build = 3"))


def test_unreadable_files_are_the_workloads_fault(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="can't be read"):
        has_build(str(tmp_path / "missing.py"))
    with pytest.raises(Refused, match="no Python"):
        has_build(_file(tmp_path, "def build(:"))


def test_declared_knobs_have_names_and_lists_of_plain_values() -> None:
    assert declared_knobs({"n": [1, 2], "mode": ("a", True)}) == {"n": (1, 2), "mode": ("a", True)}
    for wrong in ([1], {"n": 3}, {"n": []}, {3: [1]}, {"n": [None]}):
        with pytest.raises(Refused, match="KNOBS") as caught:
            declared_knobs(wrong)
        assert caught.value.kind is FailureClass.WORKLOAD


def test_a_knob_given_as_text_becomes_the_declared_value() -> None:
    def build(n: int = 1, mode: str = "a") -> None: ...

    declared = {"n": (64, 128), "mode": ("a", "b")}
    assert knob_values(build, declared, {"n": "128", "mode": "b"}) == {"n": 128, "mode": "b"}
    assert knob_values(build, declared, {"n": 7}) == {"n": 7}


def test_knobs_that_build_does_not_take_are_refused_naming_those_it_takes() -> None:
    def build(n: int = 1) -> None: ...

    with pytest.raises(Refused, match=r"--knob names m, .* it takes n"):
        knob_values(build, {}, {"m": 1})
    with pytest.raises(Refused, match="KNOBS names m"):
        knob_values(build, {"m": (1,)}, {})
    assert knob_values(lambda **knobs: None, {}, {"m": 1}) == {"m": 1}


def test_changed_variables_are_told_apart_from_removed_and_foreign_ones() -> None:
    before = Environ({"XLA_FLAGS": "--a", "JAX_X": "1", "NCCL_Y": "2"})
    after = Environ({"XLA_FLAGS": "--b", "NCCL_Y": "2", "XLA_NEW": ""})
    assert after.changes_since(before) == {"XLA_FLAGS": "--b", "JAX_X": None, "XLA_NEW": ""}
    assert before.changes_since(before) == {}


Shaped = namedtuple("Shaped", "step args work")


@pytest.mark.parametrize(
    "returned",
    [
        (double, (X,)),
        {"step": double, "args": [X]},
        SimpleNamespace(step=double, args=(X,), other=1),
        Shaped(double, (X,), None),
    ],
)
def test_every_shape_of_workload_is_read(returned: Any) -> None:
    workload = workload_of(returned)
    (step,) = workload.steps.values()
    assert step.step is double
    assert step.args == (X,)
    assert (workload.check, workload.work, step.carry, step.weight) == (None, None, None, 1.0)


def test_optional_parts_are_read_and_checked() -> None:
    whole = workload_of({"step": double, "args": (X,), "check": max, "work": 2, "carry": 1})
    assert (whole.check, whole.work, whole.steps[ONLY].carry) == (max, 2.0, 1)
    for name, value in (
        ("check", 3),
        ("work", "much"),
        ("work", 0),
        ("work", float("inf")),
        ("carry", -1),
        ("carry", True),
    ):
        with pytest.raises(Refused, match=name):
            workload_of({"step": double, "args": (X,), name: value})


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (double, "must return"),
        ((double, X, X), "must return"),
        ({"step": double}, "no args"),
        ((double, X), "tuple of the step's positional arguments"),
        ((double, ()), "args is empty"),
    ],
)
def test_other_returns_are_refused_with_what_is_wrong(returned: Any, says: str) -> None:
    with pytest.raises(Refused, match=says) as caught:
        workload_of(returned)
    assert caught.value.kind is FailureClass.WORKLOAD


def test_several_steps_are_read_each_with_its_weight() -> None:
    entries = {
        "train": (double, (X,)),
        "decode": (double, (X,), 128),
        "eval": {"step": double, "args": [X], "weight": 0.1, "carry": 0},
    }
    workload = workload_of({"steps": entries, "work": 8})
    assert {name: (one.weight, one.carry) for name, one in workload.steps.items()} == {
        "train": (1.0, None),
        "decode": (128.0, None),
        "eval": (0.1, 0),
    }
    assert list(workload_of(SimpleNamespace(steps=entries)).steps) == list(entries)


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        ({"steps": {}}, "it is empty"),
        ({"steps": [double]}, "steps must map each step's name .* a list"),
        ({"steps": {"a": double}}, r"steps\['a'\] must be"),
        ({"steps": {"a": {"step": double}}}, r"steps\['a'\] has no args"),
        ({"steps": {"a": (double, X)}}, r"steps\['a'\]: args must be the tuple"),
        ({"steps": {"a": (double, (X,), 0)}}, r"steps\['a'\]: weight must be above zero"),
        ({"steps": {"a": (double, (X,), "often")}}, r"steps\['a'\]: weight must be a number"),
        ({"steps": {"": (double, (X,))}}, "a step's name must be text"),
        ({"steps": {"a": (double, (X,))}, "args": (X,)}, "steps and args"),
    ],
)
def test_several_steps_in_another_shape_are_refused(returned: Any, says: str) -> None:
    with pytest.raises(Refused, match=says) as caught:
        workload_of(returned)
    assert caught.value.kind is FailureClass.WORKLOAD


@pytest.mark.parametrize(
    ("function", "args", "says"),
    [
        (3, (X,), "not callable"),
        (double, (1.0,), "no inputs"),
        (double, ({"a": X, "b": "text"},), r"args\[0\]\['b'\] is a str"),
    ],
)
def test_steps_that_cannot_be_stepped_are_refused(function: Any, args: tuple[Any, ...], says: str) -> None:
    with pytest.raises(Refused, match=says):
        make_step(function, args, {})


def test_a_jitted_step_keeps_its_arguments_of_jit_under_other_options() -> None:
    jitted = jax.jit(double, static_argnames="by", donate_argnums=0, compiler_options={"a": "1", "b": "2"})
    step = make_step(jitted, (X,), {"by": 3})
    again = step.jit(step.base(), {"b": "3"})
    info = again._jit_info
    assert (info.static_argnames, info.donate_argnums) == (("by",), (0,))
    assert dict(info.compiler_options_kvs) == {"a": "1", "b": "3"}
    assert step.name == "double"
    assert step.base() is not step.base()
    assert step.donated == {0}
    assert step.inputs.paths == ("args[0]",)


def test_donated_positions_behind_static_ones_are_not_shifted_twice() -> None:
    def step(mode: str, x: Any, y: Any) -> Any:
        return x + y

    made = make_step(jax.jit(step, static_argnums=0, donate_argnums=(1,)), ("a", X, X), {})
    assert made.donated == {0}
    assert made.inputs.paths == ("args[1]", "args[2]")
    assert made.inputs.call([1, 2]) == (("a", 1, 2), {})


def test_a_partial_of_a_jitted_function_is_taken_apart_and_of_a_plain_one_is_not() -> None:
    jitted = jax.jit(double)
    bound = make_step(functools.partial(functools.partial(jitted, X), by=2), (), {"by": X})
    assert bound.bound_args == (X,)
    plain = make_step(functools.partial(double, by=2), (X,), {})
    assert (plain.bound_args, plain.name) == ((), "double")


def test_a_method_of_a_jitted_function_is_taken_apart() -> None:
    class Model:
        @functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
        def step(self, x: Any) -> Any:
            return x

    model = Model()
    made = make_step(model.step, (X,), {})
    assert made.bound_args == (model,)
    assert (made.donated, made.inputs.static_args) == ({0}, {})


def test_configuration_values_get_the_types_of_jaxs_options() -> None:
    assert config_values({"jax_enable_x64": "False"}) == {"jax_enable_x64": False}
    assert config_values({"jax_default_matmul_precision": "highest"}) == {"jax_default_matmul_precision": "highest"}
    for name, value, kind in (
        ("jax_no_such_option", 1, FailureClass.UNSUPPORTED),
        ("jax_platform_name", "cpu", FailureClass.UNSUPPORTED),
        ("jax_enable_x64", "maybe", FailureClass.BAD_VALUE),
        ("jax_default_matmul_precision", "much", FailureClass.BAD_VALUE),
    ):
        with pytest.raises(Refused) as caught:
            config_values({name: value})
        assert caught.value.kind is kind
