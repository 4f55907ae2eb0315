"""The roofline: what is drawn where, what the table beside it says, and what is said where nothing can be drawn."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

import msgspec
import pytest

from tuner.profile.types import Breakdown, Ceiling, OpRow, Roofline, StepProfile
from tuner.report.blocks import Code, Figure, Prose, Table
from tuner.report.labels import Labels
from tuner.report.roofs import roofs
from tuner.report.svg import Canvas

CEILING = Ceiling(flops_per_s={"bf16": 8e14, "f16": 7.8e14, "f32": 4e14, "vector": 2e13}, bytes_per_s=3e12)
SVG = "{http://www.w3.org/2000/svg}"


# FLOP a byte, share of the roof, ms: three near the slope of the memory, of which two are where the first one's label
# would stand, and above them is the slope.
BESIDE = ((0.9, 0.59, 0.802), (0.666, 0.77, 0.37), (0.999, 0.56, 0.339), (0.25, 0.1, 0.527), (13.9, 0.91, 0.483))


def op(name: str, flops: float | None, moved: float | None, ms: float, **kwargs: object) -> OpRow:
    row = OpRow(name=name, category="matrix multiply", calls=1.0, self_ms=ms, total_ms=ms, share=ms / 10, flops=flops)
    return msgspec.structs.replace(row, bytes=moved, **kwargs)


OPS = (
    op("dot.1", 2e12, 4e9, 5.0, roof=0.5),
    op("fusion.2", 1e9, 9e9, 3.2, roof=0.9),
    op("copy.3", 0.0, 9e9, 1.0),
    op("unknown.4", None, None, 0.5),
)


def profile(ops: Sequence[OpRow] = OPS, ceiling: Ceiling | None = CEILING, step_ms: float = 10.0) -> StepProfile:
    breakdown = Breakdown(
        platform="gpu", steps=3, devices=1, step_ms=step_ms, parts={"matrix multiply": step_ms}, busy_ms=9.0, ops=ops
    )
    flops, moved = sum(row.flops or 0.0 for row in ops), sum(row.bytes or 0.0 for row in ops)
    roof = Roofline(flops=flops, bytes=moved, share=0.6 if ceiling else None, ceiling=ceiling)
    return StepProfile(breakdown=breakdown, roofline=roof, bound="compute", evidence="e")


def drawn(*sides: StepProfile) -> tuple[Figure, Table]:
    names = ("default", "winner") if len(sides) > 1 else ("a step",)
    found, table = roofs([*zip(names, sides, strict=True)])
    assert isinstance(found, Figure)
    assert isinstance(table, Table)
    assert all(table.head)
    return found, table


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter(f"{SVG}text")]


def test_every_point_is_drawn_and_told_and_what_computes_nothing_is_not() -> None:
    found, table = drawn(profile())
    for svg in (found.wide, found.narrow):
        assert {"step", "1", "2"} <= {*texts(svg)}
        assert not {"3", "4"} & {*texts(svg)}
    assert table.rows == (
        ("step", "100", "91", "200\u00a0T", "60", "all of it"),
        ("1", "50", "500", "400\u00a0T", "50", Code("dot.1")),
        ("2", "32", "0.111", "312\u00a0G", "90", Code("fusion.2")),
    )
    assert "memory 3 TB/s, bf16 800 TFLOP/s, f16 780 TFLOP/s, f32 400 TFLOP/s, vector 20 TFLOP/s" in found.caption


def test_points_stand_where_their_numbers_say_and_as_large_as_their_share() -> None:
    found, _ = drawn(profile())
    svg = ET.fromstring(found.wide)
    discs = [c for c in svg.iter(f"{SVG}circle") if c.find(f"{SVG}title") is not None]
    large, small = sorted(discs, key=lambda c: -float(c.attrib["r"]))
    assert float(large.attrib["r"]) > float(small.attrib["r"]) > 3.5
    assert float(large.attrib["cx"]) > float(small.attrib["cx"])  # more FLOP a byte
    assert float(large.attrib["cy"]) < float(small.attrib["cy"])  # more FLOP/s
    title = large.find(f"{SVG}title")
    assert title is not None
    assert title.text == "dot.1, a step: 400 TFLOP/s, 500 FLOP a byte"
    # An operation that is at the memory's roof stands on its line.
    at_roof = (op("f", 3e12, 1e12, 1e3 * 1e12 / 3e12, roof=1.0),)
    svg = ET.fromstring(drawn(profile(at_roof, step_ms=1e4))[0].wide)
    (disc,) = [c for c in svg.iter(f"{SVG}circle") if c.find(f"{SVG}title") is not None]
    slope = next(p for p in svg.iter(f"{SVG}path") if p.attrib["class"] == "roof").attrib["d"]
    (x1, y1), (x2, y2) = ([float(n) for n in pair.split()] for pair in slope[1:].split("L"))
    x, y = float(disc.attrib["cx"]), float(disc.attrib["cy"])
    assert y == pytest.approx(y1 + (y2 - y1) * (x - x1) / (x2 - x1), abs=0.3)


def test_two_sides_share_numbers_and_marks_tell_them_apart() -> None:
    faster = profile((op("dot.1", 2e12, 4e9, 4.0, roof=0.6), op("fusion.9", 1e9, 9e9, 3.2)), step_ms=8.0)
    found, table = drawn(profile(), faster)
    cells = {row[0]: row[1:] for row in table.rows}
    assert cells["1"] == ("50 → 40", "500", "400\u00a0T → 500\u00a0T", "50 → 60", Code("dot.1"))
    assert cells["2"][0] == "32 → –"
    assert cells["3"] == ("– → 32", "– → 0.111", "– → 312\u00a0G", "– → –", Code("fusion.9"))
    assert table.caption == "The roofline's points (default → winner)"
    assert "Rings: default; filled: winner." in found.caption
    looks = re.findall(r'<circle [^>]*class="([^"]*)"><title>', found.wide)
    assert sorted(looks) == ["disc best"] * 2 + ["ring control"] * 2


def test_roofs_near_each_other_share_a_label_and_each_is_drawn() -> None:
    found, _ = drawn(profile())
    assert "bf16 800 T, f16 780 T" in texts(found.wide)
    assert {"f32 400 T", "vector 20 T"} <= {*texts(found.wide)}
    assert found.wide.count('class="roof"') == 5


@pytest.mark.parametrize("width", ["wide", "narrow"])
def test_nothing_is_cut(width: str) -> None:
    crowd = tuple(op(f"fusion.{i}", 1e9 * (1 + 0.01 * i), 9e9, 1.0) for i in range(30))
    svg = ET.fromstring(getattr(drawn(profile(crowd), profile(crowd))[0], width))
    whole = [float(n) for n in svg.attrib["viewBox"].split()]
    for text in svg.iter(f"{SVG}text"):
        x, y, long = float(text.attrib["x"]), float(text.attrib["y"]), 6.4 * len(text.text or "")
        start = {"end": x - long, "middle": x - long / 2}.get(text.attrib.get("text-anchor", ""), x)
        assert start >= -1
        assert start + long <= whole[2] + 1
        assert 8 <= y <= whole[3]
    assert "1–6" in [t.text for t in svg.iter(f"{SVG}text")]  # points in one place have one label


def test_where_nothing_can_be_drawn_it_is_said_what_is_missing() -> None:
    (block,) = roofs([("a step", profile(ceiling=None))])
    assert isinstance(block, Prose)
    assert "could not be measured" in block.text
    (block,) = roofs([("a step", profile((OPS[2], OPS[3])))])
    assert isinstance(block, Prose)
    assert "of no operation both FLOPs and bytes are known" in block.text


def test_ceilings_of_a_busy_machine_and_points_outside_are_said_to_be() -> None:
    busy = msgspec.structs.replace(CEILING, unsteady=("f32",))
    far = (*OPS, op("slow", 1.0, 1e9, 1.0))
    found, _ = drawn(profile(far, busy))
    assert "so perhaps too low: f32." in found.caption
    assert found.caption.endswith("What lies outside stands on the edge.")
    assert "outside" not in drawn(profile())[0].caption


def test_labels_keep_off_each_other_and_marks_while_there_is_room() -> None:
    canvas = Canvas(400, 300)
    labels = Labels(canvas, x=(0, 400), y=(0, 300))
    places = [(200.0 + 9 * (i % 3), 150.0 + 9 * (i // 3)) for i in range(9)]
    for x, y in places:
        labels.mark(x, y, 4.0)
    for number, (x, y) in enumerate(places):
        labels.near(x, y, str(number), radius=4.0, inside=True)
    labels.draw()
    found = [
        (float(t.attrib["x"]), float(t.attrib["y"]) - 4)
        for t in ET.fromstring(canvas.drawing("t", "d", look="w")).iter(f"{SVG}text")
    ]
    assert len(found) == 9
    assert all(abs(x - u) > 6 or abs(y - v) > 11 for (x, y), (u, v) in itertools.combinations(found, 2))
    assert all(abs(x - u) > 6 or abs(y - v) > 6 for x, y in found for u, v in places)


def test_a_large_mark_holds_its_label() -> None:
    canvas = Canvas(400, 300)
    labels = Labels(canvas, x=(0, 400), y=(0, 300))
    labels.near(100, 100, "7", radius=12.0, inside=True)
    labels.draw()
    assert '<text x="100" y="104" class="halo" text-anchor="middle">7</text>' in canvas.drawing("t", "d", look="w")


@pytest.mark.parametrize(("marks", "at"), [((), 400.0), ((390.0,), 104.0), ((390.0, 110.0), 250 - 16.0)])
def test_a_line_is_named_where_no_mark_is(marks: tuple[float, ...], at: float) -> None:
    canvas = Canvas(400, 300)
    labels = Labels(canvas, x=(0, 400), y=(0, 300))
    for x in marks:
        labels.mark(x, 100, 9.0)
    labels.along(100, 400, 100, "f32 4")
    labels.draw()
    (text,) = ET.fromstring(canvas.drawing("t", "d", look="w")).iter(f"{SVG}text")
    assert float(text.attrib["x"]) == pytest.approx(at)


@pytest.mark.parametrize("crossed", [True, False])
def test_a_label_lies_on_no_line_while_there_is_room(crossed: bool) -> None:
    """Beside its mark it would be struck through."""
    canvas = Canvas(300, 200)
    labels = Labels(canvas, x=(0, 300), y=(0, 200))
    labels.mark(150, 100, 4)
    if crossed:
        labels.line(0, 300, 100)
    labels.near(150, 100, "step, 3", radius=4, inside=False)
    labels.draw()
    (text,) = ET.fromstring(canvas.drawing("t", "d", look="wide")).iter(f"{SVG}text")
    baseline = float(text.attrib["y"])
    assert (baseline - 9 < 100 < baseline + 3) != crossed


def test_a_label_beside_the_memorys_roof_is_not_struck_through() -> None:
    ceiling = Ceiling(flops_per_s={"bf16": 7.1e14, "f32": 4.05e14, "vector": 2.71e13}, bytes_per_s=4.08e12)
    near = tuple(
        op(f"f.{i}", at * (moved := 1e-3 * ms * roof * 4.08e12), moved, ms, roof=roof)
        for i, (at, roof, ms) in enumerate(BESIDE)
    )
    svg = ET.fromstring(drawn(profile(near, ceiling))[0].wide)
    slope = next(p for p in svg.iter(f"{SVG}path") if p.attrib["class"] == "roof").attrib["d"]
    (x1, y1), (x2, y2) = ([float(n) for n in pair.split()] for pair in slope[1:].split("L"))
    marks = ("step", "bf16", "f32", "vector", "memory")
    for label in svg.iter(f"{SVG}text"):
        if "halo" in label.attrib.get("class", "") and not (label.text or "").startswith(marks):
            x, baseline, half = float(label.attrib["x"]), float(label.attrib["y"]), 3.2 * len(label.text or "")
            left, right = (y1 + (y2 - y1) * (at - x1) / (x2 - x1) for at in (x - half, x + half))
            assert left < baseline - 8 or right > baseline, label.text
