"""Where the time went: the section of a run's report, its lines in the terminal, and what `tune profile` prints."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest
from synthetic_run import FOLDER, MALLOC, MATH, failing, faster, interrupted, same

from tuner.knobs.config import DEFAULT, Config
from tuner.profile.types import Breakdown, Ceiling, Finding, OpRow, RankRow, Roofline, ScopeRow, StepProfile
from tuner.protocol.failure import FailureClass
from tuner.report.blocks import Fold, Table
from tuner.report.document import RunDocument, document
from tuner.report.html import render_html
from tuner.report.markdown import render_markdown
from tuner.report.paper import run_paper
from tuner.report.profile import Profiling, profile_document, render_profile
from tuner.report.terminal import render_result
from tuner.report.view import RunView
from tuner.report.where import profile_blocks
from tuner.store.events import AnyEvent, Profiled, StageFinished

WINNER = Config.of({MATH: "false", MALLOC: "1"})
LONG = "a_very_long_name_of_a_fusion_that_the_compiler_made_out_of_many_operations.123"


def profile(scale: float = 1.0) -> StepProfile:
    parts = {
        "matrix multiply": 9.0 * scale,
        "attention": 3.0,
        "elementwise": 1.5,
        "reduction": 0.8,
        "data movement": 0.7,
        "loop control": 0.05,
        "copy host to device": 0.3,
        "collective": 1.1,
        "launch gaps": 0.35,
        "host gaps": 0.2,
        "random numbers": 0.4,
    }
    ops = (
        OpRow(
            name=LONG,
            category="matrix multiply",
            calls=24.0,
            self_ms=9.0 * scale,
            total_ms=9.0 * scale,
            share=0.5,
            scope="block/mlp",
            source="/home/me/model/train.py:88",
            registers=168,
            occupancy=0.125,
            flops=3.2e12,
            bytes=4.1e9,
            roof=0.61,
            bound="compute",
        ),
        OpRow(name="fusion.2", category="elementwise", calls=1.0, self_ms=1.5, total_ms=1.5, share=0.09),
    )
    step_ms = sum(parts.values())
    return StepProfile(
        breakdown=Breakdown(
            platform="gpu",
            steps=5,
            devices=2,
            step_ms=step_ms,
            traced_ms=step_ms * 1.01,
            parts=parts,
            busy_ms=step_ms - 0.55,
            hidden_ms=2.5,
            exposed_ms=1.1,
            kernels=240.0,
            kernel_us=21.0,
            graphs=0.8,
            attributed=0.97,
            ops=ops,
            scopes=(ScopeRow(name="block/mlp", self_ms=9.0, total_ms=9.0, share=0.5),),
        ),
        roofline=Roofline(
            flops=1.2e13,
            bytes=5e10,
            share=0.55,
            at_least_ms=9.0,
            ceiling=Ceiling(flops_per_s={"bf16": 7e14}, bytes_per_s=2.9e12),
        ),
        bound="compute",
        evidence="61 % in operations near the roof of arithmetic",
        findings=(
            Finding(
                kind="transfer", text="2 copies host to device inside the step: 1.7 % of it", where="train.py:31 load"
            ),
            Finding(kind="knobs", text="what acts on this: gemm, autotune", groups=("gemm", "autotune")),
        ),
        files={"trace": "/tmp/x/vm.xplane.pb"},
    )


def events(*profiled: Profiled) -> list[AnyEvent]:
    """A run with these profiles where its seal leaves them."""
    found = faster()
    at = next(i for i, e in enumerate(found) if isinstance(e, StageFinished) and e.stage == "seal")
    return [*found[:at], *profiled, *found[at:]]


BOTH = (
    Profiled(session="profile-winner", config=WINNER, profile=profile(0.6)),
    Profiled(session="profile-default", config=DEFAULT, profile=profile()),
)


def section(html: str) -> str:
    found = re.search(r'<section[^>]*id="where".*?</section>', html, re.DOTALL)
    return found.group(0) if found else ""


def test_the_page_has_both_sides_the_default_first_and_stays_valid() -> None:
    html = render_html(run_paper(events(*BOTH), beside=Path(FOLDER)))
    ET.fromstring(html.split("\n", 1)[1])
    text = section(html)
    assert text.index("default: compute-bound") < text.index("winner: compute-bound")
    assert "transfer" in text
    assert "What a change of the program could mend" in text
    assert "In the program itself: " in html[html.index('id="do"') : html.index('id="sure"')]
    assert "train.py:31" in text
    assert text.count("<svg") == 4


RANKS = (
    RankRow(
        rank=0,
        step_ms=18.4,
        traced_ms=19.0,
        busy_ms=18.0,
        work_ms=7.9,
        gaps_ms=0.4,
        exposed_ms=10.1,
        waits_ms={1: 9.5, 2: 0.2, 3: 0.1, 4: 0.4},
        collective="all-reduce.1",
    ),
    RankRow(rank=1, step_ms=18.3, traced_ms=19.0, busy_ms=18.0, work_ms=17.4, gaps_ms=0.3, exposed_ms=0.6),
)


def test_what_calling_a_step_takes_is_among_the_numbers() -> None:
    found = profile()
    called = msgspec.structs.replace(found, breakdown=msgspec.structs.replace(found.breakdown, dispatch_ms=0.25))

    def rows(profile: StepProfile) -> dict[str, str]:
        fold = next(b for b in profile_blocks([("default", profile)]) if isinstance(b, Fold))
        (table,) = fold.blocks
        assert isinstance(table, Table)
        return {str(name): str(ms) for name, ms in table.rows}

    assert rows(called)["calling a step, on the host"] == "0.25"
    assert "calling a step, on the host" not in rows(found)


def test_ranks_are_told_on_the_page_and_in_text() -> None:
    gang = msgspec.structs.replace(profile(), ranks=RANKS)
    html = render_html(run_paper(events(Profiled(session="p", config=DEFAULT, profile=gang)), beside=Path(FOLDER)))
    ET.fromstring(html.split("\n", 1)[1])
    assert "Ranks: ms of a step" in html
    assert "rank 1: 9.5, rank 4: 0.4, rank 2: 0.2, …" in html
    assert "Ranks" not in section(render_html(run_paper(events(*BOTH), beside=Path(FOLDER))))
    for width, said in ((110, "7.9                 10.1     0.4  rank 1: 9.5"), (60, "18.4  rank 1: 9.5")):
        text = render_profile(Profiling(profile=gang, folder=Path("/tmp/x")), width=width)
        assert "ranks  ms of a step each" in text
        assert said in text
    assert profile_document(Profiling(profile=gang, folder=Path("/tmp/x")))["profile"]["ranks"][0]["work_ms"] == 7.9


def test_of_many_ranks_those_that_wait_most_are_told_and_the_page_folds_them() -> None:
    many = (*RANKS, *(msgspec.structs.replace(RANKS[1], rank=rank, work_ms=1.0) for rank in range(2, 40)))
    many = (*many[:-1], msgspec.structs.replace(many[-1], waits_ms={1: 3.0}))
    gang = msgspec.structs.replace(profile(), ranks=many)
    text = render_profile(Profiling(profile=gang, folder=Path("/tmp/x")), width=110)
    assert "24 that wait less are left out" in text
    found = re.search(r"\nranks .*?\n\n", text, re.DOTALL)
    assert found is not None
    shown = [int(line.split()[0]) for line in found.group(0).splitlines()[3:] if line.strip()]
    assert shown[:2] == [0, 1]
    assert shown[-1] == 39
    assert len(shown) == 16
    html = render_html(run_paper(events(Profiled(session="p", config=DEFAULT, profile=gang)), beside=Path(FOLDER)))
    assert "<summary>40 ranks</summary>" in html


def test_bars_hold_every_part_and_small_ones_together() -> None:
    text = section(render_html(run_paper(events(*BOTH), beside=Path(FOLDER))))
    wide = re.search(r'<svg class="wide".*?</svg>', text, re.DOTALL)
    assert wide is not None
    svg = ET.fromstring(wide.group(0))
    names = [t.text or "" for t in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert "9 → 5.4 ms" in names
    assert "all else" in names
    bars = [r for r in svg.iter("{http://www.w3.org/2000/svg}rect") if float(r.attrib["height"]) > 20]
    for y in {r.attrib["y"] for r in bars}:
        row = sorted((float(r.attrib["x"]), float(r.attrib["width"])) for r in bars if r.attrib["y"] == y)
        assert all(x + w == pytest.approx(after, abs=1.1) for (x, w), (after, _) in itertools.pairwise(row))
        assert row[-1][0] + row[-1][1] <= float(svg.attrib["viewBox"].split()[2])


def test_without_profiles_the_section_says_how_to_take_one() -> None:
    """Of the winner where there is one; a failed profile is as none. Before a verdict there is no section."""
    failed = Profiled(session="p", config=DEFAULT, profile=None, failure=failing(FailureClass.RUNTIME, "no"))
    for found in (events(), events(failed)):
        text = section(render_html(run_paper(found, beside=Path(FOLDER))))
        assert "This run took no profile" in text
        assert "tune profile workloads/nbody.py --run nbody-" in text
        assert "where the time went" not in render_result(RunView.of(found))
    assert "tune profile workloads/nbody.py</code>" in render_html(run_paper(same()))
    assert 'id="where"' not in render_html(run_paper(interrupted()))


def test_the_terminal_has_a_few_lines_for_each_side() -> None:
    text = render_result(RunView.of(events(*BOTH)), width=80)
    part = text.split("where the time went")[1].split("\n\n")[0]
    assert part.count("compute-bound") == 2
    assert "collectives hidden behind work 2.5 ms" in " ".join(part.split())
    assert all(len(line) <= 80 for line in part.splitlines())


def test_markdown_and_the_document_have_them_too() -> None:
    assert "Where the time went" in render_markdown(run_paper(events(*BOTH)))
    found = msgspec.convert(document(RunView.of(events(*BOTH))), RunDocument)
    assert [p.settings for p in found.profiles] == [WINNER.as_dict(), {}]
    assert found.profiles[1].profile == profile()


@pytest.mark.parametrize("width", [30, 60, 100, 160])
def test_a_profile_alone_fits_the_terminal_but_for_paths_and_commands(width: int) -> None:
    found = Profiling(
        profile=profile(), folder=Path("/tmp/x"), kernel=("ncu", "--set=full"), notices=("ncu is missing",)
    )
    text = render_profile(found, width=width)
    assert "\x1b" not in text
    for line in text.splitlines():
        assert len(line) <= max(width, 60) or "/tmp" in line, line
    for said in ("compute-bound", "block/mlp", "ncu --set=full", "vm.xplane.pb"):
        assert said in text
    if width >= 100:
        assert "168 registers" in text


def test_the_document_of_a_profile() -> None:
    found = profile_document(Profiling(profile=profile(), folder=Path("/tmp/x")))
    assert found["schema"] == "tuner/profile/1"
    assert found["profile"]["breakdown"]["parts"]["attention"] == 3.0
    assert profile_document(Profiling(profile=None, folder=Path("/tmp/x")))["profile"] is None
