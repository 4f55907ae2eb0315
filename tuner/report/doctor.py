"""What `tune doctor` found, as text and as a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tuner.handoff.doctor.finding import Finding
from tuner.report.layout import Page
from tuner.report.wording import clean, count

__all__ = ["SCHEMA", "doctor_document", "render_findings"]

SCHEMA = "tuner/doctor/1"
_STYLES = {"ok": "green", "warn": "bold yellow", "fail": "bold red"}


def render_findings(findings: Sequence[Finding], *, width: int = 100, color: bool = False) -> str:
    """One line a finding, what to do below it, and the sum at the end."""
    page = Page(width)
    check_width = max((len(finding.check) for finding in findings), default=0)
    for finding in findings:
        page.rows(
            [(f"{finding.level:<4}", f"{finding.check:<{check_width}}", clean(finding.what))],
            indent=0,
            styles=(_STYLES[finding.level], "", ""),
        )
        if finding.fix:
            page.prose(f"fix: {clean(finding.fix)}", indent=check_width + 8)
    page.blank()
    bad = {level: sum(finding.level == level for finding in findings) for level in ("fail", "warn")}
    said = [count(bad["fail"], "failure")] if bad["fail"] else []
    said += [count(bad["warn"], "warning")] if bad["warn"] else []
    page.prose(", ".join(said) or "nothing to be done", style="bold")
    return page.text(color=color)


def doctor_document(findings: Sequence[Finding]) -> dict[str, Any]:
    """`ok`: nothing failed. Every finding has all four fields; `fix` is null where there is nothing to do."""
    return {
        "schema": SCHEMA,
        "ok": all(finding.level != "fail" for finding in findings),
        "findings": [
            {"check": f.check, "level": f.level, "what": clean(f.what), "fix": clean(f.fix) or None} for f in findings
        ],
    }
