"""`tune export`: the settings of a result in the language of whatever starts the program."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner.cli.boundary import Trouble, show_trouble
from tuner.cli.options import chosen, form_of, form_option, setting_options
from tuner.cli.output import write_out
from tuner.cli.params import ParamType
from tuner.cli.suggest import did_you_mean

if TYPE_CHECKING:
    from tuner.handoff.dialects import Content, Dialect

__all__ = ["command"]

_NOTHING_FOUND = 4
_XLA_FLAGS = "XLA_FLAGS"
FORMATS = ("docker", "shell", "systemd", "compose", "k8s", "slurm", "json", "flags-file", "python")


class Format(ParamType):
    """The name of a dialect."""

    name = "FORMAT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value).strip().lower()
        if text not in FORMATS:
            meant = did_you_mean(text, FORMATS)
            hint = f"did you mean {meant}?" if meant else f"there are {', '.join(FORMATS)}"
            self.fail(f"unknown format {str(value)!r}; {hint}", param, ctx)
        return text


@click.command("export")
@click.argument("target", metavar="RUN|BUNDLE|WORKLOAD")
@click.option("--format", "form", type=Format(), required=True, help=f"One of {', '.join(FORMATS)}.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write there.  [stdout]")
@click.option("--cache-dir", metavar="DIR", help="Where the sealed cache will be when the program runs; sets it.")
@click.option("--merge-flags", is_flag=True, help="Merge with the XLA_FLAGS of this environment.")
@form_option
@setting_options("store")
@click.pass_context
def command(
    ctx: click.Context,
    target: str,
    form: str,
    out: Path | None,
    cache_dir: str | None,
    merge_flags: bool,
    knobs: tuple[tuple[str, str], ...],
) -> int:
    """Write the settings of a result for the program's starter.

    Values are byte for byte what was measured. What the format can't carry is refused. For results without a gain
    the file holds the default.
    """
    settings = chosen(ctx)

    from tuner.handoff.dialects import DIALECTS
    from tuner.handoff.emission import content_of
    from tuner.handoff.target import resolve

    found = resolve(target, store=settings["store"].value, knobs=form_of(knobs))
    if found.notice and not settings["quiet"].value:
        click.echo(f"tune: {found.notice}", err=True)
    if found.bundle is None:
        show_trouble(Trouble(what=f"nothing to export: {found.why}", where=target, next="tune WORKLOAD finishes it"))
        return _NOTHING_FOUND
    bundle, dialect = found.bundle, DIALECTS[form]
    content = content_of(
        bundle.manifest,
        bundle.best,
        cache=bundle.cache,
        cache_dir=cache_dir,
        flags=os.environ.get(_XLA_FLAGS, "") if merge_flags else None,
    )
    data = dialect.write(content, out.name if out else dialect.file).encode(errors="surrogateescape")
    if out is None:
        click.echo(data, nl=False)
    else:
        write_out(out, data)
    if found.edited:
        click.echo(f"tune: {target} has changed since run {bundle.manifest.run} tuned it", err=True)
    if not settings["quiet"].value:
        _say(content, dialect, out)
    return 0


def _say(content: Content, dialect: Dialect, out: Path | None) -> None:
    """On stderr: what the file can't say by itself."""
    if not dialect.comments:
        for line in (*content.about, dialect.note):
            click.echo(f"tune: {line}", err=True)
    if content.unset and not dialect.unsets:
        click.echo(f"tune: {dialect.name} can't unset variables: {', '.join(content.unset)} must not be set", err=True)
    if out is not None:
        click.echo(f"tune: wrote {out} for {dialect.consumer}", err=True)
