"""Bench: a session with its control compiled, ready to compile, gate and time candidates against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tuner.errors import SessionEnded
from tuner.knobs import DEFAULT, PGLE, Config, fingerprint, recipe_of, split, variant
from tuner.machine import disturbed, read_nccl, readings, requested_and_ran
from tuner.measure import BlockForm, Estimate, log_ratios, schedule, stragglers
from tuner.pipeline.context import Run
from tuner.pipeline.demands import incomparable, other_work, over_memory, without_work
from tuner.pipeline.gate import gated
from tuner.pipeline.guiding import compile_guided
from tuner.pipeline.launches import launch
from tuner.protocol.failure import Failure
from tuner.protocol.messages import Block, Compiled, Loaded, NumericsReply, OptionValue, Variant
from tuner.session import Role, Session
from tuner.store.events import (
    CandidateCompiled,
    NcclRead,
    RoundTimed,
    SessionClosed,
    SessionStarted,
)
from tuner.store.records import BaselineRecord

__all__ = ["CONTROL", "REDO", "Bench"]

CONTROL = "control"

# A disturbed round is timed again at most so often before it is kept with its mark.
REDO = 1
_LOG_CHARS = 1 << 22


class Bench:
    """One living session. `config` is its environment-lane setting *e*; candidates are handled by their config's key.
    `traced`: a profiler was attached to it, which may slow all that it runs from then on, its control included.

    Every method may raise SessionEnded: the session is gone then, and so is the bench.
    """

    control_gain = 0.0

    def __init__(self, run: Run, config: Config = DEFAULT, *, role: Role = "search", home: Bench | None = None) -> None:
        self.run = run
        self.home = home
        self.config = config
        name = "home" if role == "home" else config.key[:8]
        self.launch = launch(run, name, role=role, config=config)
        self.session: Session = run.factory(self.launch)
        self.offset: Estimate | None = None
        self.last: tuple[Block, ...] = ()  # of the last round
        self.traced = False
        self._compiled: dict[Config, Compiled] = {}
        self._closed = False

    @property
    def name(self) -> str:
        return self.launch.log.stem

    def open(self) -> None:
        """Start the session and compile its control, first and alone: order matters to XLA's in-process autotuning."""
        began = self.run.budget.now()
        self.loaded: Loaded = self.session.start()
        self.run.emit(
            SessionStarted(
                session=self.name,
                role=self.launch.role,
                config=self.config,
                env=dict(self.launch.env),
                loaded=self.loaded,
                start_s=self.run.budget.now() - began,
            )
        )
        if failure := without_work(self.run, self.loaded):
            raise SessionEnded(failure)
        if failure := incomparable(self.run, self.name, self.config):
            raise SessionEnded(failure)
        began = self.run.budget.now()
        result = self.session.compile([Variant(id=CONTROL)]).results[0]
        if isinstance(result, Failure):
            raise SessionEnded(result)
        if self.config == DEFAULT:
            over_memory(self.run, self.config, result)  # says so where even the default is beyond the limit
        self.control: Compiled = result
        self.fingerprint = self._keep(self.config, result, self.run.budget.now() - began)
        if self.config == self.work != DEFAULT and not self.run.folder.reference_of(self.work).exists():
            self._save_reference()

    @property
    def work(self) -> Config:
        """The workload's knobs by which a step does other work here; nothing where it does the default's."""
        return other_work(self.run, self.name, self.config)

    def _save_reference(self) -> None:
        steps = self.run.record("baseline", BaselineRecord).numerics_steps
        reference = self.run.folder.reference_of(self.work)
        saved = self.session.numerics(CONTROL, steps=steps, reference=reference, save=True)
        if isinstance(saved, Failure):
            raise SessionEnded(saved)

    def close(self) -> None:
        """End the session. Twice is fine, also where the first time was cut off by Ctrl-C."""
        if self._closed:
            return
        ended = self.session.ended
        self.session.close()
        self._closed = True
        said = read_nccl(self._log())
        asked = requested_and_ran({**self.run.inherited, **self.config.as_dict()}, said)
        if said.ran or said.channels is not None:
            ran = {f"{operation} {size}": " ".join(how) for (operation, size), how in said.ran.items()}
            self.run.emit(
                NcclRead(session=self.name, config=self.config, channels=said.channels, ran=ran, asked=tuple(asked))
            )
        for text in asked:
            self.run.notice(f"{self.config}: {text}")
        self.run.emit(SessionClosed(session=self.name, failure=ended))

    def _log(self) -> list[str]:
        """The beginning of what the session printed: libraries say there what they chose."""
        try:
            with self.launch.log.open(errors="replace") as file:
                return file.read(_LOG_CHARS).splitlines()
        except OSError:
            return []

    def handle(self, config: Config) -> str:
        """The handle under which `config` is compiled here."""
        return CONTROL if config == self.config else config.key

    def compile(self, configs: Sequence[Config]) -> dict[Config, Compiled | Failure]:
        """Compile `configs` (whose environment part is this session's). What is compiled already costs nothing.

        What needs more memory than the user allows is a failure, and so is a PGLE profile that isn't used.
        """
        results: dict[Config, Compiled | Failure] = {c: self._compiled[c] for c in configs if c in self._compiled}
        fresh = [c for c in configs if c not in results]
        wanted = [c for c in fresh if recipe_of(c) is None]
        if wanted:
            variants = [variant(c.key, split(c, self.run.space)[1], self.run.space) for c in wanted]
            began = self.run.budget.now()
            reply = self.session.compile(variants, threads=self.threads)
            results |= dict(zip(wanted, reply.results, strict=True))
            compiled = sum(isinstance(result, Compiled) for result in reply.results)
            share_s = (self.run.budget.now() - began) / max(1, compiled)
            for config in wanted:
                if isinstance(result := results[config], Compiled):
                    self._keep(config, result, share_s)
        for config in fresh:
            if config not in results:
                results[config] = self._compile_guided(config)
        return {c: (isinstance(r, Compiled) and over_memory(self.run, c, r)) or r for c, r in results.items()}

    def _compile_guided(self, config: Config) -> Compiled | Failure:
        """With a profile, beside what the other settings compile to by themselves."""
        began = self.run.budget.now()
        plain = config.drop(PGLE)
        known = plain in self._compiled
        without = self.compile([plain])[plain]
        if isinstance(without, Failure):
            return without
        self.traced = True
        made = compile_guided(self.run, self.session, config, without)
        if not known:
            self.release([plain])
        if isinstance(made, Compiled):
            self._keep(config, made, self.run.budget.now() - began)
        return made

    def compile_plain(self, options: Mapping[str, Mapping[str, OptionValue]]) -> dict[str, Compiled | Failure]:
        """Compile with raw compiler options, by handle: a twin of the control, benign changes for the null set."""
        variants = [Variant(id=handle, compiler_options=dict(values)) for handle, values in options.items()]
        return dict(zip(options, self.session.compile(variants, threads=self.threads).results, strict=True))

    @property
    def threads(self) -> int:
        """How many compile side by side. A CPU's code generation is parallel by itself; on a GPU it is not, and the
        control has autotuned already."""
        return 1 if self.loaded.platform == "cpu" else max(1, min(16, int(self.run.host.usable_cores)))

    def _keep(self, config: Config, made: Compiled, share_s: float) -> str:
        """Remember and log what `config` compiled to; returns its fingerprint."""
        self._compiled[config] = made
        code = fingerprint(made.code, made.code_covers, config, self.run.space)
        self.run.emit(
            CandidateCompiled(session=self.name, config=config, compiled=made, fingerprint=code, share_s=share_s)
        )
        return code

    def gate(self, config: Config) -> Failure | None:
        """Compare `config`'s results with the home control's. None if they pass; a failure that says what differs."""
        home = self.home or self
        return gated(
            self.run,
            self.session,
            self.handle(config),
            config,
            home=None if home.session.ended else (home.session, CONTROL),
            phase="numerics",
        )

    def numerics(
        self, handle: str, *, steps: int, save: bool = False, nudge: int = 0, nudge_size: float = 1.0
    ) -> NumericsReply | Failure:
        """Raw comparison with the reference, or its saving; for building the null set."""
        return self.session.numerics(
            handle, steps=steps, reference=self.run.folder.reference, save=save, nudge=nudge, nudge_size=nudge_size
        )

    def round(self, stage: str, handles: Sequence[str], form: BlockForm) -> tuple[dict[str, float], dict[str, Failure]]:
        """One round: every handle once, in random order, between about √m control blocks.

        Returns each handle's gain over the control, and the failures of those that have none. A round that the machine
        disturbed is timed once more; what is still disturbed is kept, marked.
        """
        for attempt in range(REDO + 1):
            arms = [form.arm(h) for h in schedule(handles, control=CONTROL, rng=self.run.rng)]
            arms[0] = replace(arms[0], opening=form.opening)
            began = self.run.sample()
            entries = self.session.round(arms)
            ended = self.run.sample()
            blocks = tuple(e for e in entries if isinstance(e, Block))
            failures = {
                a.id: e for a, e in zip(arms, entries, strict=True) if isinstance(e, Failure) and a.id != CONTROL
            }
            trouble = disturbed(began, ended, self.run.calm) if ended else ""
            self.run.emit(
                RoundTimed(
                    session=self.name,
                    stage=stage,
                    control=CONTROL,
                    blocks=blocks,
                    conditions=readings(began, ended) if ended else {},
                    disturbed=trouble,
                )
            )
            if not trouble or attempt == REDO:
                break
        self.last = blocks
        return log_ratios([b for b in blocks if b.id not in failures], CONTROL), failures

    def value_s(self, block: Block) -> float:
        """The objective's value for a block of this session."""
        return self.run.value_s(self.name, block)

    def block(self, handle: str, form: BlockForm, *, reset: bool = True) -> Block:
        """One block of one handle outside any round, to calibrate or alternate. Raises SessionEnded if it fails."""
        entry = self.session.round([form.arm(handle)], reset=reset)[0]
        if isinstance(entry, Failure):
            raise SessionEnded(entry)
        return entry

    def name_stragglers(self) -> None:
        """Tell which ranks of a gang were slower than the others, by the control's blocks so far."""
        timed = [e for e in self.run.events if isinstance(e, RoundTimed) and e.session == self.name]
        slow = stragglers(b for event in timed for b in event.blocks if b.id == CONTROL)
        for rank, ratio in slow.items():
            self.run.notice(
                f"rank {rank} of session {self.name} is a straggler: its steps take {ratio:.2f} times as long"
            )

    def release(self, configs: Sequence[Config]) -> None:
        """Free what was compiled for `configs`; the control stays."""
        handles = [c.key for c in configs if c != self.config]
        for config in configs:
            if config != self.config:
                self._compiled.pop(config, None)
        if handles:
            self.session.release(handles)
