"""Probing options, against made-up compilers that apply them in order or in an order of chance."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tuner.worker.failures import Refused
from tuner.worker.probe import Compiler


class JaxRuntimeError(RuntimeError):
    """Named like jax's own."""


TYPES = {"xla_bool": "bool", "xla_text": "string", "xla_enum": "enum"}


class Fake:
    """A compiler that knows some options, and sees them as given, by their hash, or sorted."""

    def __init__(self, *, order: str) -> None:
        self.order, self.calls, self.compiled = order, 0, 0

    def compile(self, *, compiler_options: dict[str, Any]) -> None:
        self.calls += 1
        if isinstance(compiler_options.get("effort", 0), str):  # Python bindings look before the compiler does
            raise TypeError("(): incompatible function arguments.")
        names = [name for name in compiler_options if name != "effort"]
        if self.order == "hashed":
            random.Random("/".join(sorted(names))).shuffle(names)
        if self.order == "sorted":
            names.sort()
        for name in names:
            kind, value = TYPES.get(name), compiler_options[name]
            if kind is None:
                raise JaxRuntimeError(f"INVALID_ARGUMENT: No such compile option: '{name}'\nmore")
            if kind != "string" and value not in (True, False, "FUSION"):
                raise JaxRuntimeError(f"While setting option {name}, '{value}' is not a valid {kind} value.")
        self.compiled += 1


@pytest.mark.parametrize("order", ["given", "hashed", "sorted"])
def test_types_and_complaints_are_found_whatever_the_order(order: str) -> None:
    fake = Fake(order=order)
    compiler = Compiler(fake)
    kinds = {name: compiler.option_type(name) for name in ("xla_bool", "xla_text", "xla_enum", "xla_nope", "effort")}
    assert kinds == {"xla_bool": "bool", "xla_text": "string", "xla_enum": "enum", "xla_nope": None, "effort": "float"}
    assert compiler.complaint("xla_bool", True) == ""
    assert compiler.complaint("xla_bool", "yes") == "While setting option xla_bool, 'yes' is not a valid bool value."
    assert compiler.complaint("xla_nope", 1) == "INVALID_ARGUMENT: No such compile option: 'xla_nope'"
    assert fake.compiled == 0


@pytest.mark.parametrize("order", ["given", "hashed", "sorted"])
def test_values_of_many_names_are_asked_about_together(order: str) -> None:
    fake = Fake(order=order)
    compiler = Compiler(fake)
    before = fake.calls
    taken = {f"xla_bool{i}": (True, False) for i in range(50)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "TYPES", {**TYPES, **dict.fromkeys(taken, "bool")})
        found = compiler.complaints(
            {**taken, "xla_bool": (True, "yes", "no"), "xla_bool7": (True, 7), "xla_nope": (1,)}
        )
    assert found == {
        "xla_bool": {
            "yes": "While setting option xla_bool, 'yes' is not a valid bool value.",
            "no": "While setting option xla_bool, 'no' is not a valid bool value.",
        },
        "xla_bool7": {"7": "While setting option xla_bool7, '7' is not a valid bool value."},
        "xla_nope": {"1": "INVALID_ARGUMENT: No such compile option: 'xla_nope'"},
    }
    assert fake.calls - before <= 16 * 3 + 4 * 4  # not 16 for each of a hundred values that are taken
    assert fake.compiled == 0


def test_a_complaint_that_names_nobody_is_asked_about_one_by_one() -> None:
    compiler = Compiler(Fake(order="hashed"))
    assert compiler.complaints({"effort": ("much", 0.5), "xla_bool": (True, "yes")}) == {
        "effort": {"much": "TypeError: (): incompatible function arguments."},
        "xla_bool": {"yes": "While setting option xla_bool, 'yes' is not a valid bool value."},
    }


def test_where_the_order_holds_one_question_a_name_is_enough() -> None:
    fake = Fake(order="given")
    compiler = Compiler(fake)
    before = fake.calls
    compiler.option_type("xla_text")
    assert fake.calls == before + 1


def test_a_compiler_that_takes_anything_is_not_believed() -> None:
    class Lenient:
        def compile(self, *, compiler_options: dict[str, Any]) -> None: ...

    with pytest.raises(Refused, match="can't be probed"):
        Compiler(Lenient())
