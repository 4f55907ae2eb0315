"""What XLA_FLAGS can carry here: asked of this jaxlib's own parser, in processes that it ends, beside the first one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType

from tuner.errors import SessionEnded
from tuner.knobs import UNSET, Knob
from tuner.pipeline.context import Run
from tuner.pipeline.launches import launch
from tuner.protocol import xla_flags
from tuner.protocol.failure import FailureClass
from tuner.session import Session

__all__ = ["FlagParser"]

# A name no XLA has: the parser names it beside every other unknown one, and then the process ends.
_BOGUS = "xla_tuner_no_such_flag"
# "Unknown flags in XLA_FLAGS: --xla_a=1 --xla_b=2", "Couldn't interpret value x for flag xla_a."
_NAMED = re.compile(r"(?:--|for flag )(xla\w+)")
# A closed process is gone at once; one that was just being made isn't closed yet.
_AGAIN_S = 0.2


class FlagParser:
    """Asks about all flags of `knobs` while the block runs; left by an exception, it gives up at once.

    One throw-away process gets all of them and a bogus one, so that it always ends: its last words list exactly the
    unknown ones. A refused value ends it earlier, with the flag's name: then once more without that one.
    """

    def __init__(self, run: Run, knobs: Sequence[Knob]) -> None:
        self._run = run
        self._given = {n: _value(k) for k in knobs if k.carrier == "xla_flag" for n in (k.name, *k.aliases)}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tuner-flags")
        self._session: Session | None = None
        self._given_up = False
        self._answer: Future[dict[str, str]] | None = None

    def __enter__(self) -> FlagParser:
        self._answer = self._pool.submit(self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._given_up = error is not None
        while self._given_up and self._answer is not None and not self._answer.done():
            if self._session is not None:
                self._session.close()
            wait([self._answer], timeout=_AGAIN_S)
        self._pool.shutdown()

    def refused(self) -> Mapping[str, str]:
        """Which flags XLA_FLAGS can't carry, and why: the parser does not know the name, or refuses the value."""
        assert self._answer is not None, "asked inside the block"
        return self._answer.result()

    def _ask(self) -> dict[str, str]:
        refused: dict[str, str] = {}
        while not self._given_up:
            asked = {n: v for n, v in self._given.items() if n not in refused} | {_BOGUS: "1"}
            text = xla_flags.render([xla_flags.Flag(name=n, value=v) for n, v in asked.items()])
            held = self._run.held
            session = self._run.factory(launch(self._run, "flags", role="probe", config=held, env={"XLA_FLAGS": text}))
            self._session = session
            try:
                session.start()
                return refused
            except SessionEnded as ended:
                failure = ended.failure
            finally:
                session.close()
            named = [n for n in _NAMED.findall(failure.message) if n in asked]
            if failure.kind is FailureClass.BAD_VALUE and named:
                refused[named[0]] = f"XLA_FLAGS refuses the value {asked[named[0]]!r}"
                continue
            unknown = named if failure.kind is FailureClass.UNSUPPORTED else []
            reason = "this jaxlib takes it as a compile option only: an env-file can't carry it"
            return refused | dict.fromkeys(unknown, reason)
        return refused


def _value(knob: Knob) -> str:
    """A value that the parser should take; shares of a program's bytes stand for numbers."""
    return "1" if knob.scale else next(v for v in knob.values if v != UNSET)
