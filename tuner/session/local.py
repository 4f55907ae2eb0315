"""LocalSession: a worker process on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tuner.protocol.failure import Failure
from tuner.protocol.messages import (
    Arm,
    Block,
    Ceilings,
    CeilingsReply,
    Compile,
    Compiled,
    CompileReply,
    Load,
    Loaded,
    Lower,
    Lowered,
    Numerics,
    NumericsReply,
    OptionValue,
    Pgle,
    PgleReply,
    Probe,
    ProbeReply,
    Profile,
    ProfileReply,
    Release,
    Released,
    Round,
    RoundReply,
    Variant,
)
from tuner.session.base import Launch
from tuner.session.connection import Connection
from tuner.session.deadlines import Deadlines
from tuner.session.lifecycle import Lifecycle
from tuner.session.package import worker_zip

__all__ = ["LocalSession"]


class LocalSession:
    """A `Session` whose worker is one process on this machine, under `launch.python`.

    `environ`: the environment to inherit; `launch.env` is applied over it. `deadlines`: the limits, or a function
    that gives those of the moment (a run learns the control's times while its sessions live). `wrapper`: words put
    before the worker's command, e.g. ("taskset", "-c", "0-7").

    The worker gets a session of its own, so the terminal's Ctrl-C reaches the tuner alone. After an exception in
    the middle of a call, KeyboardInterrupt included, `close` is still in order.
    """

    def __init__(
        self,
        launch: Launch,
        *,
        environ: Mapping[str, str],
        deadlines: Deadlines | Callable[[], Deadlines],
        wrapper: Sequence[str] = (),
    ) -> None:
        self._launch = launch
        self._deadlines = deadlines
        self._wrapped = bool(wrapper)
        self._life = Lifecycle(launch.name)
        merged = {**environ, **launch.env}
        self._connection = Connection(
            (*wrapper, launch.python, str(worker_zip())),
            self._life,
            environ={name: value for name, value in merged.items() if value is not None},
            env=launch.env,
            log=launch.log,
        )

    @property
    def launch(self) -> Launch:
        return self._launch

    @property
    def ended(self) -> Failure | None:
        return self._life.ended

    def start(self) -> Loaded:
        self._life.begin()
        self._connection.open(limit_s=self._limits.start(), wrapped=self._wrapped)
        launch = self._launch
        request = Load(
            workload=str(launch.workload), argv=launch.argv, platform=launch.platform, knobs=dict(launch.knobs)
        )
        return self._connection.expect(Loaded, request, limit_s=self._limits.load())

    def probe(self, names: Sequence[str], values: Mapping[str, Sequence[OptionValue]] | None = None) -> ProbeReply:
        request = Probe(names=tuple(names), values={n: tuple(v) for n, v in (values or {}).items()})
        return self._connection.expect(ProbeReply, request, limit_s=self._limits.probe(len(request.names)))

    def lower(self) -> Lowered | Failure:
        return self._connection.ask(Lowered, Lower(), limit_s=self._limits.load())

    def compile(self, variants: Sequence[Variant], *, threads: int = 1, function: str = "") -> CompileReply:
        request = Compile(variants=tuple(variants), threads=threads, function=function)
        limit_s = self._limits.compile(len(request.variants), threads=threads)
        reply = self._connection.expect(CompileReply, request, limit_s=limit_s)
        self._check([v.id for v in request.variants], reply.results, phase="compile")
        return reply

    def round(self, arms: Sequence[Arm], *, reset: bool = True, function: str = "") -> tuple[Block | Failure, ...]:
        request = Round(arms=tuple(arms), reset=reset, function=function)
        reply = self._connection.expect(RoundReply, request, limit_s=self._limits.round(request.arms))
        self._check([a.id for a in request.arms], reply.blocks, phase="round")
        return reply.blocks

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
        request = Numerics(
            id=handle,
            steps=steps,
            reference=str(reference),
            save=save,
            nudge=nudge,
            nudge_size=nudge_size,
            precise=precise,
            function=function,
        )
        return self._connection.ask(NumericsReply, request, limit_s=self._limits.numerics(steps))

    def pgle(self, variant: Variant, *, runs: int = 3, percentile: int = 90) -> PgleReply | Failure:
        request = Pgle(variant=variant, runs=runs, percentile=percentile)
        return self._connection.ask(PgleReply, request, limit_s=self._limits.pgle(runs))

    def profile(self, request: Profile) -> ProfileReply | Failure:
        limit_s = self._limits.profile(request.steps, request.block + request.warm_up)
        return self._connection.ask(ProfileReply, request, limit_s=limit_s)

    def ceilings(self) -> CeilingsReply | Failure:
        return self._connection.ask(CeilingsReply, Ceilings(), limit_s=self._limits.first_steps_s)

    def release(self, handles: Sequence[str]) -> int:
        request = Release(ids=tuple(handles))
        return self._connection.expect(Released, request, limit_s=self._limits.release()).live_executables

    def close(self) -> None:
        self._life.close()
        self._connection.close()

    @property
    def _limits(self) -> Deadlines:
        return self._deadlines if isinstance(self._deadlines, Deadlines) else self._deadlines()

    def _check(self, asked: list[str], entries: Sequence[Compiled | Block | Failure], *, phase: str) -> None:
        """One entry for each id, in order; a failure stands for the id in its place."""
        fits = len(entries) == len(asked) and all(
            isinstance(entry, Failure) or entry.id == id for id, entry in zip(asked, entries, strict=True)
        )
        if not fits:
            got = [entry.kind if isinstance(entry, Failure) else entry.id for entry in entries]
            raise self._connection.refuse(f"asked for {asked}, the worker answered for {got}", phase=phase)
