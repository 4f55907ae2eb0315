"""The boundary: any exception becomes what happened, where, what to do next, and an exit code."""

from __future__ import annotations

import errno
import os

import click
import msgspec

from tuner.cli.suggest import did_you_mean
from tuner.errors import Interrupted, StoreUnusable, TunerError

__all__ = ["Trouble", "describe", "show_trouble"]

_DISK = {
    errno.ENOSPC: "no space is left on the device",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "the operation is not permitted",
}
_LOG_LINES = 5


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """An error as the user sees it. `log`: the last lines of a worker."""

    what: str
    where: str = ""
    next: str = ""
    log: tuple[str, ...] = ()
    exit_code: int = 1
    kind: str = "error"


def describe(error: BaseException) -> Trouble:
    """What to tell of `error`; never raises."""
    if isinstance(error, TunerError):
        return _of_tuner(error)
    if isinstance(error, click.ClickException):
        return _of_click(error)
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        return Trouble(what="interrupted", kind="interrupted", exit_code=Interrupted.exit_code)
    if isinstance(error, OSError) and error.errno in _DISK:
        return Trouble(
            what=_DISK[error.errno],
            where=str(error.filename or ""),
            next="make room or access, or give another folder with --store; a run continues where it was",
            exit_code=StoreUnusable.exit_code,
        )
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Trouble(what=what, where=_place(error), next="run again with --debug to see the traceback")


def show_trouble(trouble: Trouble) -> None:
    """Print `trouble` on stderr."""
    lead = "tune: error: " if trouble.kind == "error" else "tune: "
    lines = [lead + trouble.what]
    lines += [f"  where: {trouble.where}"] if trouble.where else []
    lines += [f"  log: {line}" for line in trouble.log]
    lines += [f"  next: {trouble.next}"] if trouble.next else []
    click.echo("\n".join(lines), err=True)


def _of_tuner(error: TunerError) -> Trouble:
    return Trouble(
        what=error.what,
        where=error.where,
        next=error.next,
        log=error.log[-_LOG_LINES:],
        exit_code=error.exit_code,
        kind="interrupted" if isinstance(error, Interrupted) else "error",
    )


def _of_click(error: click.ClickException) -> Trouble:
    """A command line that click could not read, in our form."""
    ctx = getattr(error, "ctx", None)
    command = ctx.command_path if ctx is not None else "tune"
    usage = f"{command} --help"
    what, where = error.format_message().rstrip("."), ""
    if isinstance(error, click.NoSuchOption):
        what = f"no such option {error.option_name}"
        # Two dashes make any two options alike.
        near = did_you_mean(error.option_name.lstrip("-"), [name.lstrip("-") for name in error.possibilities or ()])
        what += f"; did you mean --{near}?" if near else ""
    elif isinstance(error, click.MissingParameter):
        what = f"{_named(error.param)} is missing" if error.param is not None else what
    elif isinstance(error, click.BadParameter):
        what = error.message.rstrip(".")
        if error.param is not None:
            where = _named(error.param)
    return Trouble(what=what, where=where, next=usage, exit_code=error.exit_code)


def _named(param: click.Parameter) -> str:
    """A parameter as the user writes it."""
    return max(param.opts, key=len) if isinstance(param, click.Option) else param.human_readable_name


def _place(error: BaseException) -> str:
    """Where in the code `error` was raised: file (from the package on) and line."""
    step = error.__traceback__
    if step is None:
        return ""
    while step.tb_next is not None:
        step = step.tb_next
    parts = step.tb_frame.f_code.co_filename.split(os.sep)
    start = len(parts) - 1 - parts[::-1].index("tuner") if "tuner" in parts else max(0, len(parts) - 2)
    return f"{'/'.join(parts[start:])}:{step.tb_lineno}"
