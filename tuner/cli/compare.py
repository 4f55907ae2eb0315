"""`tune compare`: runs, bundles, documents and env-files side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli.options import chosen, setting_options
from tuner.cli.output import look, write_out
from tuner.cli.params import FRACTION, fraction_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.report.comparison import Against, Comparison

__all__ = ["command"]

_REGRESSION = 3


@click.command("compare")
@click.argument("sides", nargs=-1, required=True, metavar="A B [C...]")
@click.option(
    "--fail-if-slower", "limit", type=FRACTION, metavar="SHARE", help="Exit with 3 if one is confirmed slower by more."
)
@click.option("--by-time", is_flag=True, help="Judge --fail-if-slower by absolute step times, drift included.")
@click.option(
    "--format", "form", type=click.Choice(["text", "md", "html", "json"]), default="text", help="What to print.  [text]"
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write it there instead.")
@setting_options("store")
@click.pass_context
def command(
    ctx: click.Context, sides: tuple[str, ...], limit: float | None, by_time: bool, form: str, out: Path | None
) -> int:
    """Put runs, bundles and documents side by side.

    Each is a run (its id, folder or event log), a bundle, what `tune run --json` printed, or an env-file. Those of one
    workload are compared with the first of it, by their gains over each one's own default: they were not timed side by
    side, so times alone would compare the machine on two occasions.
    """
    store = chosen(ctx)["store"].value

    from tuner.report.compared import found
    from tuner.report.comparison import compare as compare_sides
    from tuner.report.comparison import slower
    from tuner.report.sides import read_side
    from tuner.report.wording import ratio

    comparison = compare_sides([read_side(name, store=store) for name in sides])
    failed = None if limit is None else slower(comparison, limit, by_time=by_time)
    width, color = look()
    text = _rendered(comparison, failed, form, width=width, color=color and out is None)
    if out is None:
        click.echo(text, color=color, nl=False)
    else:
        write_out(out, text.encode())
        click.echo(out)
    for entry in failed or ():
        share = fraction_text(limit or 0.0)
        worse = f"is more than {share} slower" if by_time else f"gains more than {share} less over its default"
        told = f"{ratio(entry.time)} in time {entry.base.per}" if by_time and entry.time else found(entry)
        click.echo(f"tune: {entry.other.label} {worse} than {entry.base.label}: {told}", err=True)
    return _REGRESSION if failed else 0


def _rendered(comparison: Comparison, failed: Sequence[Against] | None, form: str, *, width: int, color: bool) -> str:
    import json

    from tuner.report.compare_json import comparison_document
    from tuner.report.compared import comparison_paper

    if form == "json":
        return json.dumps(comparison_document(comparison, slower=failed), indent=2, allow_nan=False) + "\n"
    paper = comparison_paper(comparison)
    if form == "html":
        from tuner.report.html import render_html

        return render_html(paper)
    if form == "md":
        from tuner.report.markdown import render_markdown

        return render_markdown(paper)
    from tuner.report.plain import render_plain

    return render_plain(paper, width=width, color=color)
