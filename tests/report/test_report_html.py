"""The report as a page: for every kind of run it is valid, self-contained, readable by everybody, quick and small."""

from __future__ import annotations

import dataclasses
import gzip
import math
import re
import time
import xml.etree.ElementTree as ET
from collections import Counter
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from synthetic_run import FILES, FOLDER, MATH, SCENARIOS, SPLIT, estimate, failing, faster, same

from tuner.knobs.config import DEFAULT, Config
from tuner.protocol.failure import FailureClass
from tuner.report.html import render_fragment, render_html
from tuner.report.paper import run_paper
from tuner.store.events import AnyEvent, CandidateCompiled, Notice, RunStarted, StageFinished, TrialFinished
from tuner.store.log import parse
from tuner.store.records import ProbeRecord, ScreenRecord, SealRecord

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
RECORDED = sorted(RESULTS.glob("*/*.events.jsonl.gz"))
VOID = {"meta", "br", "hr", "img", "link", "input"}


def recorded(path: Path) -> list[AnyEvent]:
    return parse(gzip.decompress(path.read_bytes()), path)[0]


def page(events: list[AnyEvent]) -> str:
    return render_html(run_paper(events, beside=Path(FOLDER)))


def tree(html: str) -> ET.Element:
    """The page as XML: every tag closed, every attribute quoted, nothing unescaped."""
    assert html.startswith("<!DOCTYPE html>\n")
    return ET.fromstring(html.removeprefix("<!DOCTYPE html>\n"))


def local(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]


@pytest.fixture(scope="module")
def html(request: pytest.FixtureRequest) -> str:
    """A run's page, its events read only where its tests run, and made once for all of them."""
    return page(recorded(request.param) if isinstance(request.param, Path) else request.param)


EVERY: list[object] = [
    *(pytest.param(make(), id=name) for name, make in SCENARIOS.items()),
    *(pytest.param(path, id=path.name.partition(".events")[0], marks=pytest.mark.slow) for path in RECORDED),
    pytest.param(faster()[:1], id="just-begun"),
    pytest.param(faster()[:12], id="under-way"),
]


@pytest.mark.parametrize("html", EVERY, indirect=True)
def test_any_run_makes_a_valid_page(html: str) -> None:
    """Names are unique, links within the page lead somewhere, headings go down a level at a time, and so on."""
    root = tree(html)
    every = list(root.iter())
    ids = Counter(e.attrib["id"] for e in every if "id" in e.attrib)
    assert set(ids.values()) <= {1}
    assert root.attrib["lang"] == "en"
    assert len([e for e in every if local(e) == "h1"]) == 1
    levels = [int(local(e)[1]) for e in every if re.fullmatch("h[1-6]", local(e))]
    assert all(after <= before + 1 for before, after in pairwise(levels))
    for e in every:
        if local(e) == "a" and e.attrib["href"].startswith("#"):
            assert e.attrib["href"][1:] in ids
        if "aria-labelledby" in e.attrib:
            assert e.attrib["aria-labelledby"] in ids
        if local(e) == "table":
            assert [local(child) for child in e] == ["caption", "thead", "tbody"]
            heads = [cell for cell in e.iter() if local(cell) == "th"]
            assert all(cell.attrib.get("scope") in ("col", "row") for cell in heads)
            assert all("".join(cell.itertext()).strip() for cell in heads)
            widths = {sum(local(c) in ("td", "th") for c in row) for row in e.iter() if local(row) == "tr"}
            assert len(widths) == 1
        if local(e) == "details":
            assert local(e[0]) == "summary"
        if local(e) == "svg":
            assert [local(child) for child in e][:2] == ["title", "desc"]
            assert all((child.text or "").strip() for child in list(e)[:2])
        if local(e) == "p":
            assert not {local(child) for child in e} & {"p", "table", "pre", "figure"}
    assert not re.search(r"\b(nan|inf)\b", html)


@pytest.mark.parametrize("html", EVERY, indirect=True)
def test_a_page_needs_nothing_but_itself(html: str) -> None:
    root = tree(html)
    assert not [e for e in root.iter() if local(e) in ("script", "link", "iframe", "img", "object")]
    assert not re.search(r"url\(|@import|src=", html)
    assert set(re.findall(r'https?://[^"<\s]*', html)) <= {"http://www.w3.org/2000/svg"}
    assert not [name for e in root.iter() for name in e.attrib if name.startswith("on")]


@pytest.mark.parametrize("html", EVERY, indirect=True)
def test_coordinates_are_numbers_inside_the_drawing(html: str) -> None:
    """Text may hang over the edge by an anchor; marks and lines may not."""
    for svg in (e for e in tree(html).iter() if local(e) == "svg"):
        width, height = (float(part) for part in svg.attrib["viewBox"].split()[2:])
        for e in svg.iter():
            for name, size in (
                ("x", width),
                ("x1", width),
                ("x2", width),
                ("cx", width),
                ("y", height),
                ("cy", height),
            ):
                if name in e.attrib:
                    assert -1 <= float(e.attrib[name]) <= size + 1, (e.tag, e.attrib, width, height)


def test_verdict_and_what_to_do_come_first() -> None:
    html = page(faster())
    order = [
        html.index(text) for text in ("faster: 1.43x", 'id="do"', "best.sh", 'id="sure"', 'id="settings"', 'id="time"')
    ]
    assert order == sorted(order)
    assert 'id="provenance"' in html
    assert f'href="{Path(FILES["events"]).name}"' in html  # relative: the page lies in the run's folder


def test_failures_and_knobs_are_folded_with_their_reasons() -> None:
    root = tree(page(SCENARIOS["all_failed"]()))
    folds = {"".join(e[0].itertext()): e for e in root.iter() if local(e) == "details"}
    fatal = next(fold for text, fold in folds.items() if text.startswith("failed, fatal"))
    assert "open" not in fatal.attrib
    assert "Unknown pass" in "".join(fatal.itertext())
    assert "\x1b" not in "".join(root.itertext())


def test_nothing_that_a_run_holds_is_taken_for_markup() -> None:
    evil = "</style><script>alert(1)</script>\"'&"
    events = [msgspec.structs.replace(e, workload=evil) if isinstance(e, RunStarted) else e for e in faster()]
    config = Config.of({"name": evil})
    failure = failing(FailureClass.CRASH, evil)
    events.append(
        TrialFinished(
            number=90, stage="search", session=evil, config=config, value=None, estimate=None, failure=failure
        )
    )
    events.append(
        TrialFinished(number=91, stage="search", session=evil, config=config, value=-0.5, estimate=estimate(1.6, 0.1))
    )
    events.append(Notice(text=evil))
    root = tree(page(events))
    assert not [e for e in root.iter() if local(e) == "script"]
    assert "".join(root.itertext()).count("alert(1)") > 4


def test_long_words_may_break_where_their_parts_join_and_nowhere_behind_dashes() -> None:
    """What a browser copies is the text as it stands; short words stay whole."""
    name = "xla_gpu_experimental_enable_" + "x" * 30
    events: list[AnyEvent] = [*faster(), Notice(text=f"no time for (--{name}=false) <b>; `tune show {name}` does it")]
    html = page(events)
    notice = html[html.index('id="notices"') : html.index('id="provenance"')]
    assert '<span class="whole">(--xla</span>_<wbr/>gpu_<wbr/>experimental_<wbr/>enable_<wbr/>' in notice
    assert "x" * 13 not in notice
    assert "&lt;b&gt;; <code>tune show xla_<wbr/>gpu_" in notice
    text = "".join(tree(html).itertext())
    assert f"no time for (--{name}=false) <b>; tune show {name} does it" in text
    assert "nbody.py" in html  # not nbody.<wbr/>py


def test_a_number_stays_with_its_unit() -> None:
    """In words; a command is copied as it is typed."""
    text = page([*faster(), Notice(text="it takes 4 s and 0.5 % more: `sleep 4 s`")])
    assert "takes 4\u00a0s and 0.5\u00a0% more" in text
    assert "<code>sleep 4 s</code>" in text


def test_what_a_cache_answered_is_no_compile() -> None:
    """A setting that is delivered through a warm cache takes as long to compile as it did where none was."""
    slow = next(e for e in faster() if isinstance(e, CandidateCompiled))
    compiled = dataclasses.replace(slow.compiled, compile_s=4.0, cache_hit=None)
    loaded = dataclasses.replace(slow.compiled, compile_s=0.1, cache_hit=True)
    events = [e for e in faster() if not isinstance(e, CandidateCompiled)]
    events += [msgspec.structs.replace(slow, config=DEFAULT, compiled=c) for c in (compiled, loaded, loaded)]
    memory = html_section(page(events), "memory")
    assert re.search(r"<td[^>]*>4.0\xa0s</td><td[^>]*>1</td>", memory)


def test_a_setting_that_makes_the_defaults_program_has_no_speed_of_its_own() -> None:
    events = faster()
    default = next(e for e in events if isinstance(e, TrialFinished) and e.config == DEFAULT)
    knobs = html_section(page([same_program(e, default.fingerprint) for e in events]), "knobs")
    assert "the default&#39;s program" in knobs
    assert "the default&#39;s program" not in html_section(page(events), "knobs")


def same_program(event: AnyEvent, fingerprint: str) -> AnyEvent:
    """Of a screening, with the first flip's fingerprint changed to this one."""
    if not (isinstance(event, StageFinished) and isinstance(event.record, ScreenRecord)):
        return event
    first, *rest = event.record.flips
    flips = (msgspec.structs.replace(first, fingerprint=fingerprint), *rest)
    return msgspec.structs.replace(event, record=msgspec.structs.replace(event.record, flips=flips))


def test_trials_are_marked_by_whole_numbers() -> None:
    """However few there are."""
    few = [e for e in faster() if not isinstance(e, TrialFinished) or e.number < 3]
    drawn = html_section(page(few), "search")
    assert "trial, in the order finished" in drawn
    ticks = re.findall(r'text-anchor="middle">([^<]+)<', drawn.partition("over time")[0])
    assert ticks
    assert all(tick.isdigit() for tick in ticks)


def test_names_of_stages_lie_above_what_was_found() -> None:
    """Where nothing gains, the fastest trials, and the line through them, are the plot's upper end."""
    svg = "{http://www.w3.org/2000/svg}"
    seen = 0
    slower = [
        msgspec.structs.replace(e, value=abs(e.value)) if isinstance(e, TrialFinished) and e.value is not None else e
        for e in same()
    ]
    for drawing in tree(page(slower)).iter(f"{svg}svg"):
        names = [t for t in drawing.iter(f"{svg}text") if t.attrib.get("class") == "faint halo"]
        lines = [e for e in drawing.iter(f"{svg}line") if e.attrib.get("class") == "zero"]
        for name in names:
            assert all(float(line.attrib["y1"]) > float(name.attrib["y"]) + 4 for line in lines)
            seen += len(lines)
    assert seen


def test_kept_settings_say_what_they_do() -> None:
    probe = next(e.record for e in faster() if isinstance(e, StageFinished) and isinstance(e.record, ProbeRecord))
    why = next(knob.why for knob in probe.knobs if knob.name == MATH)
    assert why in "".join(tree(page(faster())).itertext())


@pytest.mark.parametrize("guided", [True, False])
def test_a_sealed_cache_has_to_be_named(guided: bool) -> None:
    """A step that was compiled with a profile is slower than the default where it isn't found."""
    events = [with_guide(e) if guided else e for e in faster()]
    text = html_section(page(events), "do").replace("<wbr/>", "")
    assert ("points JAX_COMPILATION_CACHE_DIR there" in text) is not guided
    assert ("slower than by default" in text) is guided


def with_guide(event: AnyEvent) -> AnyEvent:
    if not (isinstance(event, StageFinished) and isinstance(event.record, SealRecord)):
        return event
    environment = {"JAX_COMPILATION_CACHE_EXPECT_PGLE": "true"}
    return msgspec.structs.replace(event, record=msgspec.structs.replace(event.record, environment=environment))


def html_section(html: str, name: str) -> str:
    return html.partition(f'<section id="{name}"')[2].partition("</section>")[0]


def large(trials: int) -> list[AnyEvent]:
    """A run with many trials of several settings, some of them failed."""
    events = faster()
    at = next(i for i, e in enumerate(events) if isinstance(e, TrialFinished) and e.stage == "search")
    model = events[at]
    assert isinstance(model, TrialFinished)
    more: list[AnyEvent] = []
    for i in range(trials):
        config = Config.of({MATH: "false", SPLIT: str(i), "xla_cpu_some_name_as_long_as_they_are": f"VALUE_{i}"})
        gain = 0.3 + 0.05 * math.sin(i) + i * 1e-5
        fields = {"number": 1000 + i, "config": config, "value": -gain, "estimate": estimate(math.exp(gain), 0.01)}
        if i % 9 == 0:
            fields |= {"value": None, "estimate": None, "failure": failing(FailureClass.CRASH, f"SIGSEGV {i}")}
        more.append(msgspec.structs.replace(model, **fields))
    return [*events[:at], *more, *events[at:]]


@pytest.mark.slow
def test_two_thousand_trials_make_less_than_a_megabyte_and_say_what_is_left_out() -> None:
    events = large(2000)
    page(faster())  # the template is read once
    began = time.process_time()
    html = page(events)
    assert time.process_time() - began < 2.0
    assert len(html.encode()) < 1_000_000
    assert re.search(r"\d+ of 178\d timed trials are drawn, extremes kept", html)
    assert re.search(r"\d+ of 22\d failures are drawn", html)
    tree(html)


def test_looks_differ_in_the_dark_and_every_text_has_contrast() -> None:
    """WCAG 2's contrast of each colour of text to what it stands on, at least 4.5."""
    css = page(faster()).partition("<style>")[2].partition("</style>")[0]
    light, dark = (
        dict(re.findall(r"--([a-z]+): (#[0-9a-f]{3,6})", part)) for part in css.split("prefers-color-scheme", 1)
    )
    dark = dict(
        re.findall(r"--([a-z]+): (#[0-9a-f]{3,6})", css.partition("prefers-color-scheme: dark")[2].partition("* {")[0])
    )
    assert light["paper"] != dark["paper"]
    for colors in (light, dark):
        for name in ("ink", "faint", "link", "good", "warn", "bad"):
            assert contrast(colors[name], colors["paper"]) >= 4.5, name
        assert contrast(colors["ink"], colors["panel"]) >= 4.5
        for name in ("control", "best", "good", "warn", "bad"):  # graphics: 3 is enough
            assert contrast(colors[name], colors["paper"]) >= 3, name
    assert "@media print" in css


def contrast(a: str, b: str) -> float:
    lighter, darker = sorted((luminance(a), luminance(b)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(color: str) -> float:
    digits = color[1:] if len(color) == 7 else "".join(c * 2 for c in color[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_a_fragment_for_notebooks_has_no_looks_of_its_own() -> None:
    fragment = render_fragment(run_paper(faster()), sections=("do", "settings"))
    root = ET.fromstring(f"<div>{fragment}</div>")
    assert [local(e) for e in root][:1] == ["h3"]
    assert not [e for e in root.iter() if local(e) in ("svg", "style", "html")]
    assert not [e for e in root.iter() if "id" in e.attrib]  # a notebook shows several
    assert "best.sh" in "".join(root.itertext())
