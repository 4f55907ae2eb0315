"""Events as a run appends them, one by one, with what doesn't matter filled in."""

from __future__ import annotations

import math

import msgspec

from tuner.knobs.config import DEFAULT, Config
from tuner.measure.types import Estimate
from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import Block, Compiled, LeafStats, Loaded, NumericsReply
from tuner.store.events import (
    AnyEvent,
    CandidateCompiled,
    NumericsCompared,
    RoundTimed,
    SessionStarted,
    StageFinished,
    TrialFinished,
)
from tuner.store.records import (
    Measured,
    StageRecord,
)

__all__ = ["Log", "estimate", "failing"]


def estimate(speedup: float, half: float, *, n: int = 24) -> Estimate:
    """A speed-up with an interval of about ± `half` (as a ratio); infinite `half` is one that can't be computed."""
    gain = math.log(speedup)
    return Estimate(gain=gain, se=half / 2, low=gain - half / speedup, high=gain + half / speedup, n=n)


def failing(kind: FailureClass, message: str, **fields: object) -> Failure:
    """A failure in the middle of compiling unless `fields` say else."""
    return msgspec.convert({"kind": kind, "phase": "compile", "message": message, **fields}, Failure)


class Log:
    """Events with their sequence numbers and a clock of its own."""

    def __init__(self) -> None:
        self.events: list[AnyEvent] = []
        self.now = 1_750_000_000.0
        self.trials = 0
        self.stage_began = self.now

    def add(self, event: AnyEvent, *, after_s: float = 0.0) -> None:
        self.now += after_s
        self.events.append(msgspec.structs.replace(event, seq=len(self.events), time=self.now))

    def session(self, name: str, *, role: str = "home", config: Config = DEFAULT, start_s: float = 2.0) -> None:
        loaded = Loaded(
            source="build",
            step_name="step",
            platform="cpu",
            device_kind="cpu",
            device_count=1,
            process_count=1,
            versions={"python": "3.11.9", "jax": "0.10.2", "jaxlib": "0.10.2", "numpy": "2.4.6", "zstandard": "no"},
            devices=("TFRT_CPU_0",),
            xla_flags="",
            xla_flags_after="",
            environ_changed={},
            knobs_declared={},
            carried=("state.x <- [0].x",),
            inputs=("state.x f32[1024,3]",),
            input_bytes=12288,
            device_memory_bytes=None,
            has_check=False,
            work=None,
            import_s=0.6,
            init_s=0.1,
            build_s=0.2,
        )
        event = SessionStarted(session=name, role=role, config=config, env={}, loaded=loaded, start_s=start_s)
        self.add(event, after_s=start_s)

    def compiled(self, session: str, config: Config, fingerprint: str) -> None:
        made = Compiled(
            id=config.key,
            program="b" * 16,
            code=fingerprint,
            code_covers="hlo+codegen",
            lower_s=0.05,
            compile_s=0.6,
            peak_bytes=1_610_612_736,
            collectives={"all-reduce": 2},
        )
        self.add(
            CandidateCompiled(session=session, config=config, compiled=made, fingerprint=fingerprint), after_s=0.65
        )

    def round(self, session: str, stage: str, milliseconds: dict[str, float]) -> None:
        blocks = tuple(
            Block(id=handle, steps=12, seconds=12 * ms / 1000, first_s=ms / 1000) for handle, ms in milliseconds.items()
        )
        spent = sum(block.seconds + block.first_s for block in blocks)
        self.add(RoundTimed(session=session, stage=stage, control="control", blocks=blocks), after_s=spent)

    def gate(self, session: str, config: Config, *, slope: float = 2e-7, passed: bool = True) -> None:
        leaves = (
            LeafStats(path="[0].x", dtype="float32", size=3072, steps=1, l2=1e-7, slope=1e-8, masks_equal=True),
            LeafStats(path="[0].v", dtype="float32", size=3072, steps=8, l2=4e-6, slope=slope, masks_equal=True),
        )
        reason = "" if passed else f"[0].v after 8 steps: slope {slope:.2g} is beyond 1.2e-06"
        reply = NumericsReply(leaves=leaves)
        self.add(
            NumericsCompared(session=session, config=config, purpose="gate", reply=reply, passed=passed, reason=reason),
            after_s=0.2,
        )

    def trial(
        self,
        stage: str,
        config: Config,
        value: Estimate | Failure,
        *,
        session: str = "home",
        shared_with: int = -1,
        label: str = "",
    ) -> Measured:
        """A finished trial. One with samples of its own is compiled, gated and timed first."""
        number, self.trials = self.trials, self.trials + 1
        fingerprint = f"{config.key[:12]}0000"
        good = value if isinstance(value, Estimate) else None
        if good and shared_with < 0:
            self.compiled(session, config, fingerprint)
            self.gate(session, config)
            for _ in range(2):
                self.round(session, stage, {"control": 16.2, config.key: 16.2 / math.exp(good.gain)})
        self.add(
            TrialFinished(
                number=number,
                stage=stage,
                session=session,
                config=config,
                value=-good.gain if good else None,
                estimate=good,
                fingerprint=fingerprint,
                failure=value if isinstance(value, Failure) else None,
                shared_with=shared_with,
                label=label,
            )
        )
        return Measured(
            config=config, estimate=good or estimate(1.0, 1.0), fingerprint=fingerprint, trial=number, label=label
        )

    def finish(self, record: StageRecord) -> None:
        stage = record.__struct_config__.tag
        self.add(StageFinished(stage=str(stage), seconds=self.now - self.stage_began + 0.4, record=record), after_s=0.4)
        self.stage_began = self.now
