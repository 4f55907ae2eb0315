"""The load request for a file without `build`: run the script and take over its hottest jitted function in place."""

from __future__ import annotations

import sys
import threading
import time
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from tuner.protocol.failure import FailureClass
from tuner.protocol.messages import Load, Loaded
from tuner.worker.capture import ImportHook, reporting, stand_in
from tuner.worker.failures import Refused
from tuner.worker.load import Environ, enter, user_error

if TYPE_CHECKING:
    from tuner.worker.events import CompileEvents
    from tuner.worker.internals import BackendStart
    from tuner.worker.session import WorkerSession
    from tuner.worker.watch import HotCall, Watch

__all__ = ["run"]

TakeOver = Callable[[Callable[[], "tuple[WorkerSession, Loaded]"]], NoReturn]


def run(request: Load, *, take_over: TakeOver) -> NoReturn:
    """Run the script until one of its jitted functions is to be tuned, and hand that over to `take_over`.

    That happens inside the script's own call of it, and the script never goes on: unwinding it would run its `finally`
    blocks, and its `except` clauses would swallow the exception. Contexts that the step depends on (a mesh, a
    precision) stay entered. Raises Refused(WORKLOAD) if the script raises, or calls nothing that it jitted.
    """
    if request.knobs:
        names = ", ".join(request.knobs)
        raise Refused(FailureClass.WORKLOAD, f"{request.workload} has no build() that could take the knobs {names}")
    _Script(request, take_over).run()


class _Script:
    """One script under way: what is known about its jax, and when it started."""

    def __init__(self, request: Load, take_over: TakeOver) -> None:
        self._request = request
        self._take_over = take_over
        self._watch: Watch | None = None
        self._backend: BackendStart | None = None
        self._events: CompileEvents | None = None
        self._import_s = 0.0
        self._before = Environ.now()
        self._start = time.perf_counter()

    def run(self) -> NoReturn:
        path, package = enter(self._request.workload, self._request.argv)
        hook = ImportHook({"jax": self._jax_imported, "jax.experimental.pjit": self._pjit_imported})
        sys.meta_path.insert(0, hook)
        try:
            _execute(path, package)
        except SystemExit as error:
            if error.code not in (None, 0):
                raise user_error("the script", error, path) from error
        except BaseException as error:
            raise user_error("the script", error, path) from error
        for thread in threading.enumerate():
            if not thread.daemon and thread is not threading.current_thread():
                thread.join()
        if self._watch is None:
            raise _nothing(path, "it doesn't even import jax")
        if self._watch.taken:
            threading.Event().wait()  # the loop runs in another thread of the script and ends the process
        try:
            hottest = self._watch.hottest_kept(path.name)
        except Refused:
            if callable(getattr(sys.modules["__main__"], "build", None)):
                raise _nothing(path, "its build() comes from another place; write a def build in this file") from None
            raise
        self._take(hottest)

    def _jax_imported(self, module: types.ModuleType, seconds: float) -> None:
        from tuner.worker.open import prepare
        from tuner.worker.watch import Watch

        self._import_s = seconds
        self._backend, self._events = prepare(self._request.platform)
        self._watch = Watch(self._take, self._events.places)
        vars(module)["jit"] = stand_in(vars(module)["jit"], self._watch)
        vars(module)["pmap"] = reporting(module.pmap, self._watch.mapped)

    def _pjit_imported(self, module: types.ModuleType, _seconds: float) -> None:
        assert self._watch is not None
        with warnings.catch_warnings():  # jax makes the name as it is asked for, and calls it deprecated
            warnings.simplefilter("ignore", DeprecationWarning)
            pjit = getattr(module, "pjit", None)
        if pjit is not None:
            vars(module)["pjit"] = stand_in(pjit, self._watch)

    def _take(self, call: HotCall) -> NoReturn:
        self._take_over(lambda: self._opened(call))

    def _opened(self, call: HotCall) -> tuple[WorkerSession, Loaded]:
        from tuner.worker import describe
        from tuner.worker import open as opening

        assert self._backend is not None
        assert self._events is not None
        opening.check_platform(self._request.platform)
        opened = opening.open_call(
            call.function, call.args, call.kwargs, seen=call.threaded, others=call.others, events=self._events
        )
        return opened.session, describe.loaded(
            opened,
            source="script",
            backend=self._backend,
            environ_changed=Environ.now().changes_since(self._before),
            knobs_declared={},
            import_s=self._import_s,
            build_s=time.perf_counter() - self._start - self._import_s,
            recompiled=call.recompiled,
        )


def _execute(path: Path, package: tuple[str, ...]) -> None:
    """Run the file as ``__main__``, in a module that stays: its functions go on being called after its last line."""
    module = types.ModuleType("__main__")
    module.__file__ = str(path)
    module.__package__ = ".".join(package) or None
    sys.modules["__main__"] = module
    exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), vars(module))


def _nothing(path: Path, why: str) -> Refused:
    return Refused(FailureClass.WORKLOAD, f"{path.name} has neither build() nor anything jitted: {why}")
