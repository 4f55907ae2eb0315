"""Session: one worker process, or gang of processes, with one fixed environment-lane setting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from tuner.knobs.config import DEFAULT, Config
from tuner.protocol.failure import Failure
from tuner.protocol.messages import (
    Arm,
    Block,
    CeilingsReply,
    CompileReply,
    Loaded,
    Lowered,
    NumericsReply,
    OptionValue,
    PgleReply,
    ProbeReply,
    Profile,
    ProfileReply,
    Variant,
)

__all__ = ["Launch", "Role", "Session", "SessionFactory"]

Role = Literal["home", "search", "confirm", "seal", "probe", "profile"]


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """How to start a session.

    `env`: changes to the inherited environment; None removes a variable. `config`: the environment-lane setting *e*
    that `env` renders. `log`: where everything that the worker prints goes, whole.
    `processes`: over how many the devices of this host are divided, a gang where there are several. `launcher`: the
    words of a command that starts the gang instead, on as many hosts and as often as it says (``srun -N 2``); `pins`:
    variables that such a command's processes must have, for it may not hand them on. `fills_cache`: every process of a
    gang writes what it compiles into the persistent compilation cache, rank N but 0 into its folder ``rank-N``.
    """

    name: str
    role: Role
    workload: Path
    log: Path
    python: str
    env: Mapping[str, str | None]
    config: Config = DEFAULT
    argv: tuple[str, ...] = ()
    platform: str | None = None
    knobs: Mapping[str, OptionValue] = {}
    processes: int = 1
    launcher: tuple[str, ...] = ()
    pins: Mapping[str, str] = {}
    fills_cache: bool = False


class Session(Protocol):
    """A worker from the parent's side. One contract test suite runs on every implementation.

    *Ownership*: whoever made the session closes it; `close` may be called at any time, twice, and from a signal
    handler's unwinding, and leaves no process behind. *Threads*: one caller at a time.
    *Failures*: a candidate that fails is data in the reply. If the worker itself ends, hangs past a deadline or
    answers nonsense, the call raises `SessionEnded`, and so does every later call but `close`.
    *Functions*: `function` names one of `Loaded.others`, which has handles, inputs and a reference of its own; "" is
    the step.
    """

    @property
    def launch(self) -> Launch: ...

    @property
    def ended(self) -> Failure | None:
        """How the worker ended; None while it lives or after a plain `close`."""
        ...

    def start(self) -> Loaded:
        """Start the process and load the workload. Once."""
        ...

    def probe(self, names: Sequence[str], values: Mapping[str, Sequence[OptionValue]] | None = None) -> ProbeReply:
        """Which option names exist, with their types, and which of `values` the compiler refuses."""
        ...

    def lower(self) -> Lowered | Failure:
        """The step's program, without compiling it."""
        ...

    def compile(self, variants: Sequence[Variant], *, threads: int = 1, function: str = "") -> CompileReply:
        """Compile; one result a variant, in order. An id that exists already is replaced."""
        ...

    def round(self, arms: Sequence[Arm], *, reset: bool = True, function: str = "") -> tuple[Block | Failure, ...]:
        """Time the arms in this order; one entry an arm."""
        ...

    def numerics(
        self,
        handle: str,
        *,
        steps: int,
        reference: Path,
        save: bool = False,
        nudge: int = 0,
        nudge_size: float = 1.0,
        precise: bool = False,
        function: str = "",
    ) -> NumericsReply | Failure:
        """Compare `handle`'s outputs with `reference`, or save them there. The rest as in the message."""
        ...

    def pgle(self, variant: Variant, *, runs: int = 3, percentile: int = 90) -> PgleReply | Failure:
        """Take and aggregate a PGLE profile of `variant`."""
        ...

    def profile(self, request: Profile) -> ProfileReply | Failure:
        """Trace steps of a handle; over several processes, each into a folder of its own beside rank 0's."""
        ...

    def ceilings(self) -> CeilingsReply | Failure:
        """Measure what the device can do at most."""
        ...

    def release(self, handles: Sequence[str]) -> int:
        """Free handles; returns the number of live executables left."""
        ...

    def close(self) -> None:
        """End the worker and everything it started."""
        ...


SessionFactory = Callable[[Launch], Session]
