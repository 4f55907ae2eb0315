"""Which knobs exist, apply, and why not."""

from __future__ import annotations

import json

import msgspec
from synthetic_knobs import KNOBS, LEFT_AT_PROBE, MALLOC, MATH, PASSES, SPLIT, knob

from tuner.knobs.knob import When
from tuner.knobs.status import KnobStatus
from tuner.report.knobs import knob_rows, knobs_document, render_knobs

GPU = knob(
    "xla_gpu_ftz",
    ("unset", "true"),
    group="gpu",
    when=When(platform="gpu", min_devices=2, capability="9.0", jax=">=0.10"),
    requires={"xla_gpu_other": "true"},
)
TRITON = knob("xla_gpu_enable_triton_gemm", ("unset", "false"), group="gpu")
ALL = (*KNOBS, GPU, TRITON)
LOST = KnobStatus(name=SPLIT, status="unsupported", reason="'1' is not a valid\x1b[0m value", values=("1",))


def squeezed(text: str) -> str:
    return " ".join(text.split())


def test_a_knob_without_a_status_applies() -> None:
    """With all its values; one that left has none; one that lost some keeps the rest."""
    rows = {row.knob.name: row for row in knob_rows(ALL, [*LEFT_AT_PROBE, LOST], types={SPLIT: "int32"})}
    assert (rows[MATH].status, rows[MATH].values) == ("applies", ("unset", "false", "true"))
    assert (rows["xla_gpu_ftz"].status, rows["xla_gpu_ftz"].values) == ("inapplicable", ())
    assert rows[SPLIT].values == ("unset", "8")
    assert rows[SPLIT].reason == "offered as xla_cpu_codegen_split_count, which is its older name"
    assert (rows[SPLIT].option_type, rows[MATH].option_type) == ("int32", None)


def test_a_knob_that_lost_every_value_is_gone() -> None:
    """ "unset" alone is nothing to try."""
    (row,) = knob_rows([KNOBS[1]], [LOST, msgspec.structs.replace(LOST, status="failed", values=("8",))])
    assert (row.status, row.reason, row.values) == ("failed", "none of its values can be tried", ())


def test_an_alias_stands_for_the_knob() -> None:
    """What the compiler calls it here may be its other name."""
    aliased = msgspec.structs.replace(KNOBS[1], aliases=("xla_older",))
    (row,) = knob_rows([aliased], [msgspec.structs.replace(LOST, name="xla_older")], types={"xla_older": "int64"})
    assert (row.values, row.option_type) == (("unset", "8"), "int64")


def test_the_list_is_grouped_and_says_why() -> None:
    """Numbers first; what applies in full, what doesn't with its reason; an empty value is named."""
    for width in (60, 100, 200):
        text = render_knobs(ALL, [*LEFT_AT_PROBE, LOST], types={SPLIT: "int32"}, width=width)
        flat = squeezed(text)
        assert flat.startswith("6 knobs: 4 apply here, 2 inapplicable")
        assert "gpu 0 of 2 apply inapplicable xla_gpu_ftz reason needs platform gpu, this is cpu" in flat
        assert f"applies {PASSES} values unset, (empty), fusion how xla_flag, list, option lane, acts on hlo" in flat
        assert f"applies {MALLOC} values unset, 1, 2 how env, int, environment lane, acts on runtime, tier 1" in flat
        assert "int, int32 for the compiler" in flat
        assert "risks numerics" in flat
        assert "without 1, unsupported: '1' is not a valid value" in flat
        assert "\x1b" not in text
        groups = [line.split()[0] for line in text.splitlines() if line and not line.startswith(" ")]
        assert groups[1:] == ["math", "codegen", "passes", "memory", "gpu"]


def test_conditions_are_told_in_words() -> None:
    """Of a knob that applies here."""
    assert (
        "when gpu, at least 2 devices, compute capability 9.0 or later, jax >=0.10, with xla_gpu_other=true"
        in squeezed(render_knobs([GPU], []))
    )


def test_the_document_holds_every_knob_whole() -> None:
    """What it declares, what is tried here, and why the rest isn't."""
    built = knobs_document(ALL, [*LEFT_AT_PROBE, LOST], types={SPLIT: "int32"})
    assert json.loads(json.dumps(built, allow_nan=False)) == built
    assert built["schema"] == "tuner/knobs/1"
    assert built["counts"] == {"applies": 4, "inapplicable": 2}
    split = next(entry for entry in built["knobs"] if entry["name"] == SPLIT)
    assert split["declared"] == ["unset", "1", "8"]
    assert split["values"] == ["unset", "8"]
    assert split["lost"] == {"1": "unsupported: '1' is not a valid value"}
    assert (split["carrier"], split["lane"], split["option_type"]) == ("xla_flag", "option", "int32")
