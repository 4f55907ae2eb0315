"""Comparisons: who is held against whom, what is never mixed, and what each form of the answer says."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ET

import msgspec
import pytest

from tuner.errors import UsageError
from tuner.measure.types import Estimate, Verdict
from tuner.report.blocks import Code, Table
from tuner.report.compare_json import comparison_document
from tuner.report.compared import comparison_paper, found
from tuner.report.comparison import compare, slower
from tuner.report.html import render_html
from tuner.report.markdown import render_markdown
from tuner.report.plain import render_plain
from tuner.report.sides import UNCHANGED, Side

JAX10, JAX12 = {"platform": "cpu", "jax": "0.10.2"}, {"platform": "cpu", "jax": "0.12.0"}


def gain(speedup: float, half: float = 0.01) -> Estimate:
    g = math.log(speedup)
    return Estimate(gain=g, se=half / 2, low=g - half, high=g + half, n=6)


def side(label: str, speedup: float = 1.2, **fields: object) -> Side:
    basic = Side(
        name=label,
        label=label,
        kind="run",
        workload="nbody",
        program="p",
        identity=JAX10,
        settings={"xla_a": "1"},
        verdict=Verdict.FASTER,
        gain=gain(speedup),
        measured=gain(speedup),
        pairs=6,
        control_ms=12.0,
        best_ms=12.0 / speedup,
        control_pairs=(12.0, 12.1, 11.9),
        best_pairs=(12.0 / speedup, 12.1 / speedup, 11.9 / speedup),
    )
    return msgspec.structs.replace(basic, **fields)


def kept(label: str, verdict: Verdict) -> Side:
    """A side that keeps the defaults."""
    return side(label, 1.0, verdict=verdict, settings={}, gain=UNCHANGED, measured=gain(1.05, 0.1))


def texts(*sides: Side) -> str:
    return render_plain(comparison_paper(compare(sides)), width=160)


def test_each_is_held_against_the_first_of_its_workload() -> None:
    made = compare(
        [side("a"), side("x", workload="gpt"), side("b", 1.1), side("c", 1.3), side("y", 1.5, workload="gpt")]
    )
    assert [(group.workload, [s.label for s in group.sides]) for group in made.groups] == [
        ("nbody", ["a", "b", "c"]),
        ("gpt", ["x", "y"]),
    ]
    assert [(e.base.label, e.other.label) for e in made.against] == [("a", "b"), ("a", "c"), ("x", "y")]
    first = made.against[0].gain
    assert first is not None
    assert first.speedup == pytest.approx(1.1 / 1.2)
    assert made.means == ()  # three against two


def test_means_over_workloads_go_by_place() -> None:
    sides = [side("a", 2.0), side("b", 1.0), side("x", 8.0, workload="gpt"), side("y", 1.0, workload="gpt")]
    means = compare(sides).means
    assert [mean.labels for mean in means] == [("a", "x"), ("b", "y")]
    assert means[0].speedup is not None
    assert means[0].speedup.speedup == pytest.approx(4.0)
    assert means[0].relative is None
    assert means[1].relative is not None
    assert means[1].relative.speedup == pytest.approx(0.25)
    assert "b and y against the bases, over 2 workloads: 0.250x" in texts(*sides)


def test_different_environments_are_named_and_not_averaged() -> None:
    sides = [side("a"), side("b"), side("x", workload="gpt", identity=JAX12), side("y", workload="gpt", identity=JAX12)]
    means = compare(sides).means
    assert all(mean.speedup is None and "different environments: jax" in mean.why for mean in means)
    both = texts(side("a"), side("b", identity=JAX12))
    assert "in other environments (jax)" in both
    assert "neither result holds in the other" in both
    assert "0.12.0" in both
    assert "measured in equal environments" in texts(side("a"), side("b"))


def test_objectives_are_not_mixed() -> None:
    made = compare([side("a"), side("b", per="a step at p99")])
    (entry,) = made.against
    assert (entry.gain, entry.time, entry.default) == (None, None, None)
    assert "the objectives differ" in found(entry)


def test_slower_means_the_whole_interval() -> None:
    base = side("a", 1.10)
    assert slower(compare([base, side("b", 1.05)]), 0.01) != []
    assert slower(compare([base, side("b", 1.05)]), 0.05) == []
    assert slower(compare([base, side("b", 1.09)]), 0.001) == []  # the interval reaches over
    assert slower(compare([base, side("b", 1.5)]), 0.01) == []
    limit = 1.10 / 1.05 * math.exp(-math.hypot(0.01, 0.01)) - 1  # the near end of the interval
    assert slower(compare([base, side("b", 1.05)]), limit * 0.999) != []
    assert slower(compare([base, side("b", 1.05)]), limit * 1.001) == []


def test_slower_by_time_sees_what_gains_do_not() -> None:
    """A step that became slower together with its default has the same gain."""
    base = side("a", control_pairs=(10.0, 10.1, 9.9), best_pairs=(8.0, 8.1, 7.9))
    other = side("b", control_pairs=(12.0, 12.1, 11.9), best_pairs=(9.6, 9.7, 9.5))
    made = compare([base, other])
    assert slower(made, 0.01) == []
    assert [entry.other.label for entry in slower(made, 0.01, by_time=True)] == ["b"]


def test_what_could_not_be_told_is_neither_better_nor_worse() -> None:
    (entry,) = compare([side("a"), kept("b", Verdict.UNCLEAR)]).against
    assert found(entry).endswith("of what is emitted alone: b unclear, which keeps the defaults")
    assert comparison_paper(compare([side("a"), kept("b", Verdict.UNCLEAR)])).tone == "warn"
    (entry,) = compare([kept("a", Verdict.SAME), kept("b", Verdict.UNSTABLE)]).against
    assert found(entry) == "b against a: both keep the defaults (b unstable)"
    same = compare([side("a"), kept("b", Verdict.SAME)])
    assert found(same.against[0]).endswith("in gain over the default, worse")
    assert slower(same, 0.01) == list(same.against)


def test_a_check_that_cannot_be_made_does_not_pass() -> None:
    for made, by_time, message in (
        (compare([side("a"), side("b", gain=None, verdict=None)]), False, "a verdict faster or same"),
        (compare([side("a"), kept("b", Verdict.UNCLEAR)]), False, "a verdict faster or same"),
        (compare([kept("a", Verdict.UNSTABLE), side("b")]), False, "a verdict faster or same"),
        (compare([side("a"), side("b", best_pairs=(), control_pairs=())]), True, "two step times a side"),
        (compare([side("a"), side("x", workload="gpt")]), False, "no two of these are of the same workload"),
    ):
        with pytest.raises(UsageError, match=message):
            slower(made, 0.01, by_time=by_time)


def test_one_run_in_two_forms_is_one_measurement() -> None:
    """Its intervals are not those of two; what is measured anew under the same id is another one."""
    a, b = side("a", run="nbody-1"), side("b", run="nbody-1", kind="bundle", best_ms=10.0000001, best_pairs=())
    (entry,) = compare([a, b]).against
    assert entry.once
    assert (entry.gain, entry.time, entry.default) == (UNCHANGED, UNCHANGED, UNCHANGED)
    assert "b against a: one and the same run" in texts(a, b)
    assert comparison_document(compare([a, b]))["groups"][0]["against"][0]["same_run"] is True
    with pytest.raises(UsageError, match="the same run as a"):
        slower(compare([a, b]), 0.01)
    for other in (side("b", run="nbody-1", best_ms=9.9), side("b", run="nbody-2"), side("b"), side("b", 1.1)):
        assert not compare([a, other]).against[0].once


def test_a_place_that_is_not_known_is_not_another_one() -> None:
    """As of a log that ends before its session began."""
    cut = side("cut", identity={}, context={}, gain=None, verdict=None)
    (entry,) = compare([cut, side("b")]).against
    assert (entry.unlike, entry.circumstances) == ({}, {})
    text = texts(cut, side("b"))
    assert "Not known where it was measured: cut." in text
    assert "equal environments" not in text
    assert "different environments" not in text


def test_one_side_is_nothing_to_compare() -> None:
    with pytest.raises(UsageError, match="nothing to compare"):
        compare([side("a")])


def test_equal_labels_are_told_apart() -> None:
    made = compare([side("run", name="old/run"), side("run", name="new/run")])
    assert [s.label for s in made.sides] == ["old/run", "new/run"]
    twice = compare([side("run"), side("run")])
    assert [s.label for s in twice.sides] == ["run (1)", "run (2)"]


def test_settings_stand_side_by_side() -> None:
    env = Side(name="x.env", label="x.env", kind="env-file", settings={"xla_b": ""})
    shown = texts(
        side("a", settings={"xla_a": "1", "xla_c": "7"}), side("b", settings={"xla_a": "2", "xla_c": "7"}), env
    )
    lines = [line.split() for line in shown.splitlines()]
    assert ["xla_a", "1", "2", "unset"] in lines
    assert ["xla_b", "unset", "unset", "(empty)"] in lines
    assert ["xla_c", "7", "7", "unset"] in lines
    assert "emit the same settings" in texts(side("a"), side("b"))
    assert "keep the defaults" in texts(side("a", settings={}), side("b", settings={}))


def test_env_files_alone_are_compared_by_their_settings() -> None:
    one, other = (Side(name=n, label=n, kind="env-file", settings={"xla_a": n}) for n in ("1", "2"))
    assert "settings alone are compared" in texts(one, other)


def test_across_versions_of_jax_it_says_what_went() -> None:
    gone = {"xla_a": ("unsupported", "no such option"), "xla_old": ("unsupported", "no such option")}
    new = {"xla_new": ("unsupported", "no such option in 0.10")}
    shown = texts(side("a", left=new), side("b", 1.0, identity=JAX12, left=gone, gain=UNCHANGED, verdict=Verdict.SAME))
    assert "gain before 1.200x (1.188–1.212), after 1x, keeps the defaults" in " ".join(shown.split())
    assert "jax 0.12.0 no longer has: --xla_a=1" in shown
    assert "2 knobs gone in jax 0.12.0" in shown
    assert "1 knob new in jax 0.12.0" in shown
    assert "Across versions" not in texts(side("a"), side("b"))
    useless = {"xla_a": ("inapplicable", "needs jax <0.12, this is 0.12.0"), "xla_gpu": ("inapplicable", "needs gpu")}
    shown = texts(side("a", left=new), side("b", identity=JAX12, left=useless))
    assert "jax 0.12.0 no longer has: --xla_a=1" in shown
    assert "1 knob gone in jax 0.12.0" in shown
    assert "xla_gpu" not in shown  # that is no matter of versions


def test_absolute_times_carry_a_warning_and_other_programs_too() -> None:
    shown = texts(side("a"), side("b", program="q"))
    assert "which no interval here covers" in " ".join(shown.split())
    assert "the programs differ" in shown


def test_a_knob_in_which_runs_differ_becomes_a_curve() -> None:
    sides = [side(f"r{b}", held={"batch": b}, control_ms=float(b), best_ms=float(b) / 2) for b in ("32", "8", "16")]
    paper = comparison_paper(compare(sides))
    knob = next(section for section in paper.sections if section.name == "knob")
    table = knob.blocks[1]
    assert [row[0] for row in table.rows] == ["8", "16", "32"]  # type: ignore[union-attr]
    assert "Milliseconds a step by batch" in render_html(paper)
    assert "logarithmic" not in render_html(paper)
    wide = [side(f"r{b}", held={"batch": b}, control_ms=float(b), best_ms=float(b) / 2) for b in ("8", "80", "800")]
    html = render_html(comparison_paper(compare(wide)))
    assert "The scale of batch is logarithmic" in html
    first, second, third = (float(x) for x in re.findall(r'cx="([0-9.]+)"[^>]*><title>batch [0-9]+: ', html)[:3])
    assert second - first == pytest.approx(third - second, abs=0.2)
    for broken in (
        [side("a", held={"batch": "8"}), side("b", held={})],
        [side("a", held={"batch": "8"}), side("b", held={"batch": "9"}, per="a step at p99")],
        [side("a", held={"batch": "8", "width": "1"}), side("b", held={"batch": "9", "width": "2"})],
        [side("a", held={"batch": "8"}), side("b", held={"batch": "9"}, identity=JAX12)],
        [side("a", held={"batch": "8"}), side("b", held={"batch": "8"})],
    ):
        assert not [s for s in comparison_paper(compare(broken)).sections if s.name == "knob"]


def _held(**held: str) -> Side:
    ms = float(held.get("batch", "4")) * (2 if held.get("mesh") == "8x1" and "batch" in held else 1)
    return side("-".join(held.values()), held=held, control_ms=ms, best_ms=ms / 2)


def test_a_grid_of_two_knobs_becomes_a_curve_for_each_value_of_one() -> None:
    grid = [_held(batch=b, mesh=m) for m in ("4x2", "8x1") for b in ("16", "8", "32")]
    paper = comparison_paper(compare([*grid, _held(batch="8", mesh="2x4")]))
    knob = next(section for section in paper.sections if section.name == "knob")
    tables = [block for block in knob.blocks if isinstance(block, Table)]
    assert [t.caption for t in tables] == ["By batch, at mesh 4x2", "By batch, at mesh 8x1"]  # of 2x4 there is but one
    assert [row[0] for row in tables[0].rows] == ["8", "16", "32"]
    assert [row[1] for row in tables[0].rows] == [Code(f"{b}-4x2") for b in (8, 16, 32)]  # whose times they are
    html = render_html(paper)
    ET.fromstring(html.removeprefix("<!DOCTYPE html>\n"))
    assert "Milliseconds a step by batch, at mesh 8x1, default and tuned" in html
    heights = re.findall(r'cy="([0-9.]+)"[^>]*class="control ring"><title>batch (?:16|32): 32 ms', html)
    assert len(heights) == 4  # in two charts, of two widths each
    assert len(set(heights)) == 1  # one scale for both


def test_named_values_stand_side_by_side_without_a_line() -> None:
    html = render_html(comparison_paper(compare([_held(mesh=m) for m in ("8x1", "2x4", "4x2")])))
    assert "Milliseconds a step by mesh, default and tuned" in html
    places = [float(x) for x in re.findall(r'cx="([0-9.]+)"[^>]*><title>mesh [0-9x]+: 4 ms', html)[:3]]
    assert places == sorted(places)
    assert places[1] - places[0] == pytest.approx(places[2] - places[1], abs=0.2)
    chart = html[html.index("Milliseconds a step by mesh") :]
    assert "<path" not in chart[: chart.index("</svg>")]


def test_every_form_says_the_same() -> None:
    made = compare([side("a", 1.2), side("b", 1.1), side("c", gain=None, verdict=None)])
    paper = comparison_paper(made)
    html, text, markdown = render_html(paper), render_plain(paper), render_markdown(paper)
    ET.fromstring(html.removeprefix("<!DOCTYPE html>\n"))
    for form in (html, text, markdown):
        assert "0.917x (0.904–0.930)" in form
        assert "c has no verdict" in " ".join(form.split())
    assert "\x1b" not in text
    assert "\x1b" in render_plain(paper, color=True)
    values = json.loads(json.dumps(comparison_document(made, slower=made.against[:1]), allow_nan=False))
    assert values["schema"] == "tuner/compare/1"
    assert [s["label"] for s in values["sides"]] == ["a", "b", "c"]
    against = values["groups"][0]["against"]
    assert against[0]["relative"]["ratio"] == pytest.approx(1.1 / 1.2)
    assert against[1]["relative"] is None
    assert values["slower"] == ["b"]
    assert comparison_document(made)["slower"] is None
