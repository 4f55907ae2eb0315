"""What `tune profile` shows: as text for people, and as a document for programs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from tuner.profile.types import Breakdown, KernelRow, OpRow, RankRow, ScopeRow, StepProfile
from tuner.report.layout import Page
from tuner.report.where import RANK_HEAD, alike_text, launch_text, profile_lines, rank_cells, traced_text
from tuner.report.wording import si_text

__all__ = ["SCHEMA", "Profiling", "profile_document", "render_profile"]

SCHEMA = "tuner/profile/1"

_OPS, _FEW_OPS = 20, 8
_KERNELS = 8
_RANKS = 16
_SCOPES = 12
_WIDE = 90  # below it the table has fewer columns
_NAME = 24


class Profiling(msgspec.Struct, frozen=True, kw_only=True):
    """`profile` None: Nsight Systems was asked for; `missing`: it is not here. `nsight`: its command, `kernel`: that of
    Nsight Compute for the kernel that takes longest; () where there is none. `notices`: what is missing here, and
    why. `reports`: what Nsight Systems wrote."""

    profile: StepProfile | None
    folder: Path
    nsight: tuple[str, ...] = ()
    kernel: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    reports: tuple[str, ...] = ()
    missing: bool = False


def render_profile(found: Profiling, *, width: int = 100, color: bool = False) -> str:
    """Verdict first, then the parts, the operations, the scopes, and where the traces are. Names of operations are cut;
    paths and commands never are."""
    page = Page(width)
    profile = found.profile
    if profile is not None:
        profile_lines(page, profile)
        _numbers(page, profile)
        _ranks(page, profile.ranks, wide=width >= _WIDE)
        _kernels(page, profile.breakdown.by_kernel, wide=width >= _WIDE)
        _operations(page, profile.breakdown, wide=width >= _WIDE)
        _scopes(page, profile.breakdown.scopes)
        if note := "; ".join(filter(None, (profile.breakdown.note, profile.roofline.note))):
            page.blank()
            page.prose(note, style="dim")
    _commands(page, found)
    if profile is not None:
        page.heading("files", "for XProf and TensorBoard (--logdir), Perfetto (ui.perfetto.dev) and pprof")
        page.rows([("logdir", str(found.folder))], styles=("", "cyan"), wrap=False)
        page.rows([*profile.files.items()], styles=("", "cyan"), wrap=False)
    return page.text(color=color)


def _numbers(page: Page, profile: StepProfile) -> None:
    b, roof = profile.breakdown, profile.roofline
    called = f"{b.dispatch_ms:.3g} ms to call a step, " if b.dispatch_ms else ""
    compiling = f", {profile.compile_s:.3g} s to compile it before" if profile.compile_s else ""
    rows = [
        ("step", f"{traced_text(b)}; {b.steps} traced steps, {_devices(b.devices)}"),
        ("operations", f"{b.kernels:.4g} a step, half of them below {_short(b.kernel_us)}"),
        ("host", f"{called}{b.compiles} compiles in the trace{compiling}"),
    ]
    if b.graphs:
        rows.append(("CUDA graphs", f"hold {100 * b.graphs:.0f} % of the operations"))
    if b.attributed < 0.995:
        rows.append(("attributed", f"{100 * b.attributed:.0f} % of device time belongs to a known operation"))
    if roof.ceiling is not None:
        peaks = ", ".join(f"{name} {flops / 1e12:.3g} TFLOP/s" for name, flops in roof.ceiling.flops_per_s.items())
        rows.append(("ceilings", f"{peaks}, memory {si_text(roof.ceiling.bytes_per_s)}B/s (measured)"))
    page.heading("numbers")
    page.rows(rows)


def _ranks(page: Page, rows: Sequence[RankRow], *, wide: bool) -> None:
    if not rows:
        return
    told = "ms of a step each; all else is rank 0's"
    if len(rows) > _RANKS:
        told += f"; {len(rows) - _RANKS} that wait less are left out"
        most = sorted(rows, key=lambda row: -_waiting(rows, row))[:_RANKS]
        rows = sorted(most, key=lambda row: row.rank)
    page.heading("ranks", told)
    if not wide:
        page.rows([(str(row.rank), f"{row.step_ms:.4g}", rank_cells(row)[-1]) for row in rows], align=">><")
        return
    page.rows([("rank", *RANK_HEAD), *((str(row.rank), *rank_cells(row)) for row in rows)], align=">>>>><")


def _waiting(rows: Sequence[RankRow], row: RankRow) -> float:
    """How much this rank waits, and is waited for, ms."""
    return max([*row.waits_ms.values(), *(other.waits_ms.get(row.rank, 0.0) for other in rows)], default=0.0)


def _short(us: float) -> str:
    return f"{us:.3g} us" if us < 1000 else f"{us / 1000:.3g} ms"


def _devices(number: int) -> str:
    return "1 device" if number == 1 else f"{number} devices"


def _operations(page: Page, breakdown: Breakdown, *, wide: bool) -> None:
    most = _FEW_OPS if breakdown.by_kernel else _OPS  # of many that are alike a few tell enough
    shown = [row for row in breakdown.ops if row.self_ms > 0][:most]
    if not shown:
        return
    page.heading("operations", "those that take longest themselves, per step")
    if not wide:
        page.rows([(f"{100 * r.share:.1f} %", _cut(r.name, 24), r.category) for r in shown], align="><<")
        return
    head = ("share", "self ms", "total ms", "calls", "of roof", "operation", "kind, scope, line")
    table = [
        (
            f"{100 * row.share:.1f} %",
            f"{row.self_ms:.3g}",
            f"{row.total_ms:.3g}",
            f"{row.calls:.3g}",
            "" if row.roof is None else f"{100 * row.roof:.0f} %",
            _cut(row.name, _NAME),
            _about(row),
        )
        for row in shown
    ]
    page.rows([head, *table], align=">>>>><<")


def _about(row: OpRow) -> str:
    line = Path(row.source).name if row.source else ""
    return ", ".join(filter(None, (row.category, row.scope, line, launch_text(row))))


def _kernels(page: Page, rows: Sequence[KernelRow], *, wide: bool) -> None:
    """Where one runs for several operations."""
    if not rows:
        return
    page.heading("kernels", "those that take longest over all operations that they run for, per step")
    if not wide:
        page.rows([(f"{100 * r.share:.1f} %", _cut(r.name, 24), r.category) for r in rows[:_KERNELS]], align="><<")
        return
    table = [
        (
            f"{100 * row.share:.1f} %",
            f"{row.self_ms:.3g}",
            f"{row.calls:.3g}",
            _cut(row.name, _NAME),
            ", ".join(filter(None, (row.category, alike_text(row), launch_text(row)))),
        )
        for row in rows[:_KERNELS]
    ]
    page.rows([("share", "self ms", "calls", "kernel", "kind, for whom"), *table], align=">>><<")


def _scopes(page: Page, rows: Sequence[ScopeRow]) -> None:
    if rows:
        page.heading("named scopes", "with what is inside them, per step")
        table = [
            (f"{100 * row.share:.1f} %", f"{row.self_ms:.3g}", f"{row.total_ms:.3g}", row.name)
            for row in rows[:_SCOPES]
        ]
        page.rows([("share", "self ms", "total ms", "scope"), *table], align=">>><")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _commands(page: Page, found: Profiling) -> None:
    if not (found.nsight or found.kernel):
        return
    page.heading("NVIDIA's profilers")
    for notice in found.notices:
        page.prose(notice, indent=2)
    for command in (found.nsight, found.kernel):
        if command:
            page.line(shlex.join(command), indent=2, style="cyan")
    for report in found.reports:
        page.line(report, indent=2, style="cyan")


def profile_document(found: Profiling) -> dict[str, Any]:
    """The profile in full: numbers as in `tuner.profile.types`, null where there is none."""
    return {
        "schema": SCHEMA,
        "profile": msgspec.to_builtins(found.profile),
        "folder": str(found.folder),
        "nsight_systems": list(found.nsight),
        "nsight_compute": list(found.kernel),
        "notices": list(found.notices),
        "reports": list(found.reports),
    }
