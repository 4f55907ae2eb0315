"""`tune exec`: become another command, under the settings of a result."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import click

from tuner.cli.boundary import describe
from tuner.cli.options import chosen, form_of, form_option, setting_options
from tuner.cli.params import COUNT
from tuner.errors import LaunchFailed, UsageError

if TYPE_CHECKING:
    from tuner.handoff.bundle import Bundle
    from tuner.handoff.target import Target

__all__ = ["command"]

_COMMAND = "tuner.command"
_NO_GAIN = 4
_XLA_FLAGS = "XLA_FLAGS"


class ExecCommand(click.Command):
    """A command that leaves everything after ``--`` to another program, and whose own failures are told from that
    program's by exit codes as env(1) and docker have them: 125, or 126 and 127 where the program can't be started."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except click.exceptions.Exit:
            raise
        except Exception as error:
            raise _ours(error) from error

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" not in args and not {"-h", "--help"} & {*args}:
            raise UsageError("there is no command", next="tune exec WORKLOAD -- python train.py")
        cut = args.index("--") if "--" in args else len(args)
        ctx.meta[_COMMAND] = tuple(args[cut + 1 :])
        return super().parse_args(ctx, args[:cut])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            raise _ours(error) from error

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "-- COMMAND..."]


@click.command("exec", cls=ExecCommand)
@click.argument("target", metavar="WORKLOAD|RUN|BUNDLE")
@click.option("--require-gain", is_flag=True, help="Exit 4 unless there is a proven gain that fits here.")
@click.option("--default-if-changed", is_flag=True, help="Take the default if the workload's file has changed since.")
@click.option("--previous", is_flag=True, help="The workload's bundle before the newest, to go back.")
@click.option("--number", type=COUNT, metavar="N", help="The workload's bundle with this number.")
@click.option("--anyway", is_flag=True, help="Use settings that were measured on another machine or jax.")
@form_option
@setting_options("store")
@click.pass_context
def command(
    ctx: click.Context,
    target: str,
    require_gain: bool,
    default_if_changed: bool,
    previous: bool,
    number: int | None,
    anyway: bool,
    knobs: tuple[tuple[str, str], ...],
) -> int:
    """Become COMMAND, under the best settings that are known.

    Without a result that fits, COMMAND runs in the environment as it is. Its signals and its exit status are its own;
    125, 126 and 127 are tune's: it failed itself, COMMAND can't be started, there is no COMMAND.
    """
    settings = chosen(ctx)
    command: tuple[str, ...] = ctx.meta[_COMMAND]
    if not command:
        raise UsageError("there is no command after --", next="tune exec WORKLOAD -- python train.py")

    from tuner.handoff.target import resolve
    from tuner.machine.here import visible

    if previous and number is not None:
        raise UsageError("--previous and --number exclude each other", next="give one of them")
    found = resolve(
        target,
        store=settings["store"].value,
        seen=visible(command[0]),
        number=number,
        previous=previous,
        knobs=form_of(knobs),
    )
    bundle, said = _chosen(found, anyway=anyway, default_if_changed=default_if_changed)
    environ = dict(os.environ)
    if bundle is not None:
        said = f"{said}{_apply(bundle, environ)}"
    if not settings["quiet"].value:
        for line in filter(None, (found.notice, said)):
            click.echo(f"tune: {line}", err=True)
    if require_gain and (bundle is None or not bundle.manifest.settings):
        return _NO_GAIN
    return _become(command, environ)


def _chosen(found: Target, *, anyway: bool, default_if_changed: bool) -> tuple[Bundle | None, str]:
    """The bundle to use, None for the environment as it is, and what to say of it."""
    bundle = found.bundle
    if bundle is None:
        return None, f"default: {found.why}"
    run = f"run {bundle.manifest.run}"
    if found.unlike and not anyway:
        return None, f"default: {run} is of another place: {found.differs} (--anyway uses it)"
    if found.edited and default_if_changed:
        return None, f"default: {bundle.manifest.workload} has changed since {run}"
    notes = [f"{bundle.manifest.workload} has changed since"] if found.edited else []
    notes += [found.differs] if found.unlike else []
    own = bundle.manifest.control.knobs if bundle.manifest.control else {}
    notes += [f"tuned with {' '.join(f'{n}={v}' for n, v in own.items())}"] if own else []
    return bundle, f"{run} ({'; '.join(notes)}): " if notes else f"{run}: "


def _apply(bundle: Bundle, environ: dict[str, str]) -> str:
    """Change `environ` as the bundle says, and tell what that means."""
    from tuner.handoff.merging import merge_flags
    from tuner.knobs.layout import LAYOUT
    from tuner.report.wording import ratio

    manifest, changes = bundle.manifest, bundle.environment()
    measured, notes = changes.get(_XLA_FLAGS), []
    if measured is not None and environ.get(_XLA_FLAGS):
        merged = merge_flags(environ[_XLA_FLAGS], measured)
        changes[_XLA_FLAGS] = merged.text
        notes += [f"XLA_FLAGS merged: {merged.said}"] if merged.said else []
        notes += ["so the sealed cache won't be used"] if merged.changed and bundle.cache else []
    for name, value in changes.items():
        if value is None:
            environ.pop(name, None)
        else:
            environ[name] = value
    if not manifest.settings:
        return "; ".join([f"{manifest.verdict.value}, so the default", *notes])
    gain = ratio(manifest.estimate) if manifest.estimate else "faster"
    chosen_settings = " ".join(f"{name}={value}" for name, value in manifest.settings.items())
    if LAYOUT in manifest.settings:
        notes.append("start one process per device yourself, for that layout")
    return "; ".join([f"{gain} with {chosen_settings}", *notes])


def _become(command: tuple[str, ...], environ: dict[str, str]) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    # Python ignores these two, and a program that is started ignores what its starter did.
    for name in ("SIGPIPE", "SIGXFSZ"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, environ)
    except FileNotFoundError as error:
        raise LaunchFailed(
            "there is no such program", where=command[0], next="check its name and PATH", exit_code=127
        ) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise LaunchFailed(
            f"can't be started: {reason}", where=command[0], next="check its permissions", exit_code=126
        ) from error


def _ours(error: Exception) -> LaunchFailed:
    """`error` with an exit code that says that it is not the program's."""
    if isinstance(error, LaunchFailed):
        return error
    trouble = describe(error)
    return LaunchFailed(trouble.what, where=trouble.where, next=trouble.next)
