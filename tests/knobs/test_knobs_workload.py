"""A workload's own knobs."""

from __future__ import annotations

import pytest

from tuner.errors import WorkloadError
from tuner.knobs import UNSET, from_workload


def test_declared_texts_become_a_knob() -> None:
    unroll, remat = from_workload({"unroll": ("1", "2", "1"), "remat": ("True", "False")}, source="w.py")
    assert (unroll.type, unroll.values) == ("int", (UNSET, "1", "2"))
    assert (remat.type, remat.values) == ("bool", (UNSET, "true", "false"))
    assert (unroll.carrier, unroll.lane, unroll.acts_on) == ("workload", "environment", "hlo")
    assert unroll.source == "w.py"


@pytest.mark.parametrize(
    ("name", "values"), [("not-a-name", ("1",)), ("class", ("1",)), ("empty", ()), ("u", (UNSET,))]
)
def test_what_build_could_not_take_is_refused(name: str, values: tuple[str, ...]) -> None:
    with pytest.raises(WorkloadError, match="KNOBS"):
        from_workload({name: values}, source="w.py")


def test_the_default_of_build_is_no_value_of_its_own() -> None:
    """It is what "unset" stands for: trying it would time the default against itself."""
    declared = {"remat": ("none", "full"), "batch": ("16", "64"), "fused": ("True", "False")}
    knobs = from_workload(declared, source="w.py", defaults={"remat": "none", "fused": "false"})
    assert [k.values for k in knobs] == [(UNSET, "full"), (UNSET, "16", "64"), (UNSET, "true")]
    assert "unset is build()'s own none" in knobs[0].why
    with pytest.raises(WorkloadError, match="nothing but 16"):
        from_workload({"batch": ("16",)}, source="w.py", defaults={"batch": "16"})
