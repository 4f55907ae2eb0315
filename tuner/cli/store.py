"""`tune store`: what the store holds, and its upkeep."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner.cli.boundary import Trouble, show_trouble
from tuner.cli.options import chosen, json_option, setting_options
from tuner.cli.output import look, print_json
from tuner.cli.params import COUNT
from tuner.cli.suggest import did_you_mean
from tuner.errors import UsageError

if TYPE_CHECKING:
    from tuner.store.exchange import Taken

__all__ = ["command"]

_NOTHING_FOUND = 4
_KINDS = ("runs", "bundles", "verdicts", "programs", "environments", "keys")


class StoreGroup(click.Group):
    """Sub-commands, with a suggestion for one that isn't."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in self.commands:
            meant = did_you_mean(args[0], self.commands)
            raise UsageError(
                f"tune store has no command {args[0]!r}" + (f"; did you mean {meant}?" if meant else ""),
                next="tune store --help",
            )
        return super().resolve_command(ctx, args)


@click.group("store", cls=StoreGroup)
def command() -> None:
    """List, mend, merge and clear what runs have left.

    Event logs are the truth; the database beside them is made from these and can be made again. Raw samples stay in the
    logs.
    """


@command.command("ls")
@click.argument("kind", type=click.Choice(_KINDS), default="runs", metavar=f"[{'|'.join(_KINDS)}]")
@click.option("--workload", metavar="FILE", default="", help="Only of workloads whose file has this name.")
@setting_options("store")
@json_option
@click.pass_context
def ls(ctx: click.Context, kind: str, workload: str, as_json: bool) -> int:
    """List what the store holds, the oldest first."""
    where = chosen(ctx)["store"].value

    from tuner.report.stored import render_rows, stored_document
    from tuner.store.folder import locate_store
    from tuner.store.listing import listed
    from tuner.store.reader import reading

    with reading(locate_store(where)) as reader:
        rows = listed(reader, kind, workload=Path(workload).name)
        _tell(ctx, [reader.notice])
    if as_json:
        print_json(stored_document({kind: rows}))
        return 0
    if not rows:
        click.echo(f"{where} holds no {kind}" + (f" of {workload}" if workload else ""), err=True)
        return 0
    width, color = look()
    click.echo(render_rows(kind, rows, width=width, color=color), color=color, nl=False)
    return 0


@command.command("show")
@click.argument("name")
@setting_options("store")
@json_option
@click.pass_context
def show(ctx: click.Context, name: str, as_json: bool) -> int:
    """Show all about a run, program, environment or workload.

    NAME is the id of a run, the key of a program or an environment, or how one of these begins; or a workload's file
    name.
    """
    where = chosen(ctx)["store"].value

    from tuner.report.stored import render_things, stored_document
    from tuner.store.folder import locate_store
    from tuner.store.listing import matching
    from tuner.store.reader import reading

    with reading(locate_store(where)) as reader:
        things = matching(reader, name) if name else {}
        _tell(ctx, [reader.notice])
    if not things:
        trouble = Trouble(what=f"nothing here is called {name!r} or begins so", where=where, next="tune store ls")
        show_trouble(trouble)
        return _NOTHING_FOUND
    width, color = look()
    if as_json:
        print_json(stored_document(things))
    else:
        click.echo(render_things(things, width=width, color=color), color=color, nl=False)
    return 0


@command.command("rebuild")
@setting_options("store")
@click.pass_context
def rebuild_(ctx: click.Context) -> int:
    """Make the database anew from the event logs.

    Index and Optuna studies. What it knows of runs whose logs are elsewhere stays; a damaged file is kept aside.
    """
    where = chosen(ctx)["store"].value

    from tuner.report.wording import count
    from tuner.store.folder import open_store
    from tuner.store.upkeep import rebuild

    store = open_store(where)
    done = rebuild(store)
    _tell(ctx, [*store.notices, *done.notices])
    click.echo(f"{count(done.runs, 'run')} taken up from the event logs")
    return 0


@command.command("merge")
@click.argument("other", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="FOLDER")
@setting_options("store")
@click.pass_context
def merge(ctx: click.Context, other: Path) -> int:
    """Take in the runs of another store, bundles included.

    FOLDER is a store of your own: sealed caches hold compiled programs, and whoever loads a bundle executes them. For
    records from elsewhere there is `tune store import`.
    """
    where = chosen(ctx)["store"].value

    from tuner.store.exchange import merge_store
    from tuner.store.folder import open_store

    store = open_store(where)
    return _taken(ctx, where, merge_store(other, store))


@command.command("export")
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write there.  [stdout]")
@setting_options("store")
@click.pass_context
def export(ctx: click.Context, runs: Sequence[str], out: Path | None) -> int:
    """Write the records of runs (default: of all) as one file.

    The file is packed with gzip and holds event logs only. `tune store import` reads it; that of one run `tune compare`
    and `tune report` too.
    """
    where = chosen(ctx)["store"].value

    import gzip
    import io

    from tuner.report.wording import count
    from tuner.store.exchange import export_runs
    from tuner.store.find import find_run, runs_at

    known = runs_at(where)
    meant = [find_run(known, name, where="RUN") for name in runs] or [*known]
    if not meant:
        show_trouble(Trouble(what="no run is kept here", where=where, next="tune WORKLOAD, or name another --store"))
        return _NOTHING_FOUND
    if out is None and sys.stdout.isatty():
        raise UsageError("this is no text for a terminal", next="tune store export --out FILE.jsonl.gz, or a pipe")
    data = io.BytesIO()
    with gzip.GzipFile(fileobj=data, mode="wb", mtime=0) as packed:
        for line in export_runs(meant):
            packed.write(line)
    if out is None:
        click.echo(data.getvalue(), nl=False)
    else:
        try:
            out.write_bytes(data.getvalue())
        except OSError as error:
            raise UsageError(
                f"can't be written: {error.strerror}", where=str(out), next="give another --out"
            ) from error
    if not chosen(ctx)["quiet"].value:
        click.echo(f"tune: {count(len(meant), 'run')}, {len(data.getvalue()) / 1e6:.1f} MB", err=True)
    return 0


@command.command("import")
@click.argument("files", nargs=-1, required=True, metavar="FILE|-...")
@setting_options("store")
@click.pass_context
def import_(ctx: click.Context, files: Sequence[str]) -> int:
    """Take in records that `tune store export` wrote.

    Records only: nothing in them is ever executed. FILE may also be one run's event log; - is standard input.
    """
    where = chosen(ctx)["store"].value

    from tuner.store.exchange import Taken, import_records
    from tuner.store.folder import open_store

    store = open_store(where)
    total = Taken()
    for name in files:
        try:
            data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        except OSError as error:
            raise UsageError(f"can't be read: {error.strerror or error}", where=name, next="give a file") from error
        total = total.plus(import_records(data, store, where=name))
    return _taken(ctx, where, total)


@command.command("gc")
@click.option("--keep", type=COUNT, metavar="N", help="Keep N bundles of a workload in an environment.")
@click.option("--unfinished", is_flag=True, help="Also runs that ended without a result.")
@click.option("--delete", is_flag=True, help="Delete it; without, it is only shown.")
@setting_options("store")
@click.pass_context
def gc(ctx: click.Context, keep: int | None, unfinished: bool, delete: bool) -> int:
    """Show, or delete, what nobody needs any more.

    That is what runs left in their scratch folders, bundles that were never finished, and damaged databases. Records of
    finished runs always stay; so do runs that are being written.
    """
    where = chosen(ctx)["store"].value

    from tuner.store.folder import locate_store
    from tuner.store.upkeep import garbage, remove

    store = locate_store(where)
    found = garbage(store, keep=keep, unfinished=unfinished)
    for item in found:
        click.echo(f"{item.path}  {item.size / 1e6:.1f} MB, {item.why}")
    if delete:
        remove(store, found)
    size = sum(item.size for item in found)
    said = "deleted" if delete else "to be deleted with --delete"
    click.echo(f"{said}: {size / 1e6:.1f} MB" if found else "nothing to delete", err=True)
    return 0


def _taken(ctx: click.Context, where: str, taken: Taken) -> int:
    """Put what was taken in into the database, and say what it was."""
    from tuner.report.wording import count
    from tuner.store.folder import open_store
    from tuner.store.index import Index
    from tuner.store.upkeep import restore_studies

    store = open_store(where)
    changed = [store.run(run) for run in (*taken.added, *taken.grown)]
    index = Index(store.url, runs=store.runs)
    try:
        index.open()
        index.rebuild([store.run(run) for run in taken.grown])
        notices = index.notices
    finally:
        index.close()
    notices = [*store.notices, *taken.left, *notices, *restore_studies(store, changed, limit_s=None)]
    _tell(ctx, notices)
    bundles = f"; {count(taken.bundles, 'bundle')} copied" if taken.bundles else ""
    click.echo(
        f"{count(len(taken.added), 'run')} added, {len(taken.grown)} brought up to date, {taken.same} here already"
        + bundles
    )
    return 0


def _tell(ctx: click.Context, notices: Sequence[str]) -> None:
    if not chosen(ctx)["quiet"].value:
        for notice in filter(None, notices):
            click.echo(f"tune: {notice}", err=True)
