"""What `tune pgle` shows: what the profile covers, whether the compiler used it, and how a program gets it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import msgspec

from tuner.profile.guided import ProfileFacts
from tuner.report.layout import Page
from tuner.report.wording import count, percent

__all__ = ["SCHEMA", "Guide", "facts_text", "guide_document", "render_guide"]

SCHEMA = "tuner/pgle/1"


class Guide(msgspec.Struct, frozen=True, kw_only=True):
    """`cause`: why the profile isn't used; then all that follows from its use is empty. `scale`: on what it was taken.
    `said`: the compiler said that it was handed a profile; `changed`: it made something else of the step than without.
    `found`: a fresh process found that in the warmed cache. `environment`, `auto`: variables for the profile as a file,
    and for one that jax takes itself; `env_file` is for the warmed cache. `nsight`: the program under Nsight Systems,
    with the step from that cache."""

    folder: Path
    facts: ProfileFacts | None
    scale: str
    cause: str = ""
    said: bool = False
    changed: bool = False
    found: bool = False
    profile: Path | None = None
    env_file: Path | None = None
    environment: dict[str, str] = {}
    auto: dict[str, str] = {}
    nsight: tuple[str, ...] = ()


def facts_text(facts: ProfileFacts) -> str:
    """What a profile covers, in one line."""
    text = (
        f"{count(facts.entries, 'entry', 'entries')}, times of {facts.covered} of {facts.operations} operations and "
        f"{facts.collectives_covered} of {count(facts.collectives, 'collective')}, from {count(facts.traces, 'run')}"
    )
    text += f" that differ by {percent(facts.spread)}" if facts.spread is not None else ""
    return f"{text}; {facts.foreign} of another module" if facts.foreign else text


def render_guide(found: Guide, workload: Path, *, width: int = 100, color: bool = False) -> str:
    """Verdict first. Paths and commands are never cut."""
    page = Page(width)
    active = not found.cause
    page.prose(
        "the profile is used" if active else f"no profile: {found.cause}", style="bold" if active else "bold red"
    )
    rows = [("taken on", found.scale)]
    if found.facts is not None:
        rows.append(("profile", facts_text(found.facts)))
    if active:
        rows += [
            ("compiler", "says that it uses it" if found.said else "says nothing of it"),
            ("schedule", "another than without" if found.changed else "the same as without: nothing is gained by it"),
            ("cache", "a fresh process finds the step there" if found.found else "a fresh process does NOT find it"),
        ]
    page.blank()
    page.rows(rows, indent=0, styles=("dim",))
    if active:
        _forms(page, found, workload)
    page.heading("files")
    page.line(str(found.folder), indent=2, style="cyan")
    return page.text(color=color)


def _forms(page: Page, found: Guide, workload: Path) -> None:
    forms = (
        ("from the warmed cache", "which may be moved with jax 0.11 and later", f"{found.env_file}"),
        ("as a file", "whose path is part of the cache's key", _assignments(found.environment)),
        ("by jax itself", "not for steps that are compiled ahead of time", _assignments(found.auto)),
    )
    for title, note, line in forms:
        page.heading(title, note)
        page.line(line, indent=2, style="cyan")
    page.heading("Nsight Systems", "with the step from the warmed cache: it can't run while a profile is taken")
    page.line(shlex.join(["tune", "profile", str(workload), "--env-file", str(found.env_file), "--nsys"]), indent=2)
    page.line(shlex.join(found.nsight), indent=2, style="cyan")
    page.heading("next", "what it gains, among other settings")
    page.line(shlex.join(["tune", str(workload), "--first", "pgle"]), indent=2, style="cyan")


def _assignments(variables: dict[str, str]) -> str:
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())


def guide_document(found: Guide) -> dict[str, Any]:
    """The same for programs: null where there is nothing."""
    facts = found.facts
    return {
        "schema": SCHEMA,
        "active": not found.cause,
        "cause": found.cause,
        "scale": found.scale,
        "facts": msgspec.to_builtins(facts) if facts is not None else None,
        "said": found.said,
        "changed": found.changed,
        "found_in_cache": found.found,
        "profile": str(found.profile) if found.profile else None,
        "env_file": str(found.env_file) if found.env_file else None,
        "environment": found.environment,
        "auto": found.auto,
        "nsight_systems": list(found.nsight),
        "folder": str(found.folder),
    }
