"""How the doctor's findings look."""

from __future__ import annotations

import pytest

from tuner.handoff.doctor import Finding
from tuner.report.doctor import doctor_document, render_findings

FINDINGS = (
    Finding(level="ok", check="python", what="3.12.1, /usr/bin/python"),
    Finding(
        level="warn",
        check="variables",
        what="JAX_COMPILATION_CACHE_DIRECTORY: jax does not read it, and nothing else would tell that this is so",
        fix="did you mean JAX_COMPILATION_CACHE_DIR?",
    ),
    Finding(level="fail", check="jax", what="can't be imported: \x1b[31mboom\x1b[0m\x07", fix="pip install -U jax"),
)

AT_60 = """\
ok    python     3.12.1, /usr/bin/python
warn  variables  JAX_COMPILATION_CACHE_DIRECTORY: jax does
                 not read it, and nothing else would tell
                 that this is so
                 fix: did you mean
                 JAX_COMPILATION_CACHE_DIR?
fail  jax        can't be imported: boom
                 fix: pip install -U jax

1 failure, 1 warning
"""


def test_sixty_columns() -> None:
    assert render_findings(FINDINGS, width=60) == AT_60


@pytest.mark.parametrize("width", [30, 40, 60, 100, 200])
def test_no_width_loses_a_word_and_no_line_is_longer_than_its_longest_word_needs(width: int) -> None:
    text = render_findings(FINDINGS, width=width)
    for word in ["JAX_COMPILATION_CACHE_DIRECTORY:", "fix:", "boom", "pip", "install", "warn", "fail", "ok"]:
        assert word in text
    assert "\x1b" not in text
    assert all(len(line) <= max(width, 60) for line in text.splitlines())


def test_colour_adds_nothing_but_colour() -> None:
    import re

    colored = render_findings(FINDINGS, width=60, color=True)
    assert "\x1b[" in colored
    plain = re.sub(r"\x1b\[[0-9;]*m", "", colored)
    assert [line.rstrip() for line in plain.splitlines()] == [line.rstrip() for line in AT_60.splitlines()]


def test_the_sum_tells_what_is_to_be_done() -> None:
    assert render_findings(FINDINGS[:1]).endswith("\nnothing to be done\n")
    assert render_findings(FINDINGS[:2]).endswith("\n1 warning\n")
    assert render_findings(FINDINGS * 2).endswith("\n2 failures, 2 warnings\n")


def test_the_document_has_every_field() -> None:
    document = doctor_document(FINDINGS)
    assert (document["schema"], document["ok"]) == ("tuner/doctor/1", False)
    assert document["findings"][0] == {
        "check": "python",
        "level": "ok",
        "what": "3.12.1, /usr/bin/python",
        "fix": None,
    }
    assert document["findings"][2]["what"] == "can't be imported: boom"
    assert doctor_document(FINDINGS[:2])["ok"] is True
