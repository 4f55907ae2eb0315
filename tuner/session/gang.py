"""GangSession: one program over several processes, told the same things in the same order and ended as one."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from tuner.errors import SessionEnded
from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import (
    Arm,
    Block,
    Ceilings,
    CeilingsReply,
    Compile,
    Compiled,
    CompileReply,
    Gang,
    Hello,
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
from tuner.session.blame import Heard, culprit
from tuner.session.deadlines import Deadlines
from tuner.session.lifecycle import Lifecycle
from tuner.session.ranks import Launched, Local, Ranks
from tuner.session.together import slowest, together, worst

__all__ = ["GangSession"]

R = TypeVar("R")

# All ranks together are looked at so often; a death is seen within that.
_LOOK_S = 0.25
# A rank that failed alone has waited for the others already (worker/gang.py).
_ALONE_S = 2.0


class GangSession:
    """A `Session` whose worker is a gang: `launch.processes` on this machine, or what `launch.launcher` starts.

    Every rank gets every request; rank 0's answer counts, held against the others'. The workers compare what they run
    before it runs. A rank that dies, hangs or differs ends the session: the failure names it and the last step that it
    began, and all are killed. `environ`, `deadlines`: as for `LocalSession`; `wrapper` too, for ranks started here.
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
        self._life = Lifecycle(launch.name)
        self._ranks: Ranks = Launched(launch, environ) if launch.launcher else Local(launch, environ, wrapper=wrapper)

    @property
    def launch(self) -> Launch:
        return self._launch

    @property
    def ended(self) -> Failure | None:
        return self._life.ended

    def start(self) -> Loaded:
        self._life.begin()
        try:
            hellos = self._ranks.open(limit_s=self._limits.start())
        except SessionEnded as ended:
            raise self._end(ended.failure) from None
        self._life.require()  # it may have been closed meanwhile, by another thread
        launch = self._launch
        requests = [
            Load(
                workload=str(launch.workload),
                argv=launch.argv,
                platform=launch.platform,
                knobs=dict(launch.knobs),
                gang=gang,
                environ={**launch.pins, **launch.env} if launch.launcher else {},
                pins=tuple(launch.pins),
            )
            for gang in _gang(hellos, divide_cpu=not launch.launcher, fills_cache=launch.fills_cache)
        ]
        return self._expect(Loaded, requests, limit_s=self._limits.load())[0]

    def probe(self, names: Sequence[str], values: Mapping[str, Sequence[OptionValue]] | None = None) -> ProbeReply:
        """Asks rank 0 alone: nothing is compiled, and all have the same compiler."""
        request = Probe(names=tuple(names), values={n: tuple(v) for n, v in (values or {}).items()})
        return self._expect(ProbeReply, [request], limit_s=self._limits.probe(len(request.names)))[0]

    def lower(self) -> Lowered | Failure:
        """Rank 0's program; the workers compare all ranks' when they compile."""
        return self._ask(Lowered, self._all(Lower()), limit_s=self._limits.load())[0]

    def compile(self, variants: Sequence[Variant], *, threads: int = 1, function: str = "") -> CompileReply:
        """One after another whatever `threads` says: the ranks' compilers talk to each other."""
        request = Compile(variants=tuple(variants), function=function)
        replies = self._expect(CompileReply, self._all(request), limit_s=self._limits.compile(len(request.variants)))
        for rank, reply in enumerate(replies):
            self._check(rank, [v.id for v in request.variants], reply.results, phase="compile")
        return dataclasses.replace(
            replies[0],
            cache_requests=sum(reply.cache_requests for reply in replies),
            cache_hits=sum(reply.cache_hits for reply in replies),
            modules=tuple(
                dataclasses.replace(module, rank=rank) for rank, reply in enumerate(replies) for module in reply.modules
            ),
        )

    def round(self, arms: Sequence[Arm], *, reset: bool = True, function: str = "") -> tuple[Block | Failure, ...]:
        """Each block is the slowest rank's, with every rank's time beside it."""
        request = Round(arms=tuple(arms), reset=reset, function=function)
        replies = self._expect(RoundReply, self._all(request), limit_s=self._limits.round(request.arms))
        for rank, reply in enumerate(replies):
            self._check(rank, [a.id for a in request.arms], reply.blocks, phase="round")
        return tuple(map(slowest, zip(*(reply.blocks for reply in replies), strict=True)))

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
        """Every rank holds its own part of each array against its own reference, a file beside `reference`; against
        `reference` itself where one process made that. Each leaf's statistics are those of the worst rank."""
        self._life.require()
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
        replies = self._ask(NumericsReply, self._all(request), limit_s=self._limits.numerics(steps))
        return next((r for r in replies if isinstance(r, Failure)), None) or worst(
            [r for r in replies if isinstance(r, NumericsReply)]
        )

    def pgle(self, variant: Variant, *, runs: int = 3, percentile: int = 90) -> PgleReply | Failure:
        """Rank 0's profile: jax hands rank 0's to all when it compiles with one."""
        request = Pgle(variant=variant, runs=runs, percentile=percentile)
        return self._ask(PgleReply, self._all(request), limit_s=self._limits.pgle(runs))[0]

    def profile(self, request: Profile) -> ProfileReply | Failure:
        """Rank 0's trace, with the others' beside it, whose files are in folders of their own."""
        self._life.require()
        own = [Path(request.folder, f"rank-{rank}" if rank else "") for rank in range(len(self._ranks.connections))]
        requests = [dataclasses.replace(request, folder=str(folder)) for folder in own]
        limit_s = self._limits.profile(request.steps, request.block + request.warm_up)
        replies = self._ask(ProfileReply, requests, limit_s=limit_s)
        return next((r for r in replies if isinstance(r, Failure)), None) or together(
            [r for r in replies if isinstance(r, ProfileReply)]
        )

    def ceilings(self) -> CeilingsReply | Failure:
        """Asks rank 0 alone: its device is like the others'."""
        self._life.require()
        return self._ask(CeilingsReply, [Ceilings()], limit_s=self._limits.first_steps_s)[0]

    def release(self, handles: Sequence[str]) -> int:
        request = Release(ids=tuple(handles))
        return self._expect(Released, self._all(request), limit_s=self._limits.release())[0].live_executables

    def close(self) -> None:
        self._life.close()
        self._ranks.close(at_once=self._life.ended is not None)

    @property
    def _limits(self) -> Deadlines:
        return self._deadlines if isinstance(self._deadlines, Deadlines) else self._deadlines()

    def _all(self, request: object) -> list[object]:
        self._life.require()
        return [request] * len(self._ranks.connections)

    def _ask(self, kind: type[R], requests: Sequence[object], *, limit_s: float) -> list[R | Failure]:
        """The answers by rank; the first of the requests is rank 0's, and so on."""
        self._life.require()
        answers: dict[int, R | Failure] = {}
        failed_since = 0.0
        rank = 0
        try:
            for rank, request in enumerate(requests):
                self._ranks.connections[rank].post(request, limit_s=limit_s)
            while len(answers) < len(requests):
                waiting = [rank for rank in range(len(requests)) if rank not in answers]
                for rank in waiting:
                    answer = self._ranks.connections[rank].take(kind, wait_s=_LOOK_S / len(waiting))
                    if answer is not None:
                        answers[rank] = answer
                        if isinstance(answer, Failure):
                            failed_since = failed_since or time.monotonic()
                if failed_since and time.monotonic() - failed_since > _ALONE_S and len(answers) < len(requests):
                    # It could not go on, and the others wait for it.
                    rank, failure = next((r, a) for r, a in answers.items() if isinstance(a, Failure))
                    raise self._end(self._about(rank, failure))
        except SessionEnded as ended:
            if self._life.ended is not None:
                raise
            raise self._end(self._blamed(rank, ended.failure)) from None
        return [answers[rank] for rank in range(len(requests))]

    def _expect(self, kind: type[R], requests: Sequence[object], *, limit_s: float) -> list[R]:
        """As `_ask`, for requests that a living gang always fulfils: a failure ends it."""
        replies: list[R] = []
        for rank, reply in enumerate(self._ask(kind, requests, limit_s=limit_s)):
            if isinstance(reply, Failure):
                raise self._end(self._about(reply.rank or rank, reply))
            replies.append(reply)
        return replies

    def _blamed(self, rank: int, failure: Failure) -> Failure:
        """`rank` ended by `failure`; but it may only have followed another one, or waited for it."""
        now = time.monotonic()
        heard = []
        for number, connection in enumerate(self._ranks.connections):
            ended = failure if number == rank else connection.glance()
            heard.append(Heard(progress=connection.progress, silent_s=now - connection.heard, ended=ended))
        who, what = culprit(rank, failure, heard)
        return self._about(who, what)

    def _about(self, rank: int, failure: Failure) -> Failure:
        """`failure` with the rank that it is about, the last step that it began, and its log."""
        connection = self._ranks.connections[rank]
        steps = connection.progress.steps if connection.progress is not None else None
        return dataclasses.replace(connection.with_log(failure), rank=rank, steps=steps)

    def _end(self, failure: Failure) -> SessionEnded:
        error = self._life.end(failure)
        self._ranks.close(at_once=True)
        return error

    def _check(self, rank: int, asked: list[str], entries: Sequence[Compiled | Block | Failure], *, phase: str) -> None:
        fits = len(entries) == len(asked) and all(
            isinstance(entry, Failure) or entry.id == id for id, entry in zip(asked, entries, strict=True)
        )
        if not fits:
            got = [entry.kind if isinstance(entry, Failure) else entry.id for entry in entries]
            message = f"asked for {asked}, rank {rank} answered for {got}"
            raise self._end(Failure(kind=FailureClass.PROTOCOL, phase=phase, message=message, rank=rank))


def _gang(hellos: Sequence[Hello], *, divide_cpu: bool, fills_cache: bool) -> list[Gang]:
    """Each rank's place; seats on a host are given in the order of ranks."""
    hosts = [hello.host for hello in hellos]
    return [
        Gang(
            rank=rank,
            size=len(hellos),
            coordinator=hellos[0].address,
            seat=hosts[:rank].count(hello.host),
            neighbours=hosts.count(hello.host),
            divide_cpu=divide_cpu,
            fills_cache=fills_cache,
        )
        for rank, hello in enumerate(hellos)
    ]
