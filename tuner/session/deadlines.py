"""How long each phase of a session may take before its worker counts as hung, from the control's own times."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tuner.protocol.messages import Arm

__all__ = ["Deadlines"]


class Deadlines(msgspec.Struct, frozen=True, kw_only=True):
    """Deadlines in seconds. Before the control's times are known each phase has a generous one of its own.

    `load_s`, `compile_s`, `step_s`: what the control took to load, to compile alone and cold, and for one step. A
    candidate's step may be `factor` times slower than the control's before it is cut, its compile `compile_factor`
    times; no deadline is under `floor_s`, which covers what does not grow with the step: copies to the host, a busy
    machine.
    """

    load_s: float | None = None
    compile_s: float | None = None
    step_s: float | None = None
    factor: float = 20.0
    compile_factor: float = 10.0
    floor_s: float = 60.0
    start_s: float = 120.0
    first_load_s: float = 900.0
    first_compile_s: float = 900.0
    first_steps_s: float = 600.0

    def with_control(
        self, *, load_s: float | None = None, compile_s: float | None = None, step_s: float | None = None
    ) -> Deadlines:
        """These deadlines with what was learned about the control; what is None here stays as it was."""
        return msgspec.structs.replace(
            self,
            load_s=self.load_s if load_s is None else load_s,
            compile_s=self.compile_s if compile_s is None else compile_s,
            step_s=self.step_s if step_s is None else step_s,
        )

    def start(self) -> float:
        """Until the worker's hello: an interpreter starts, no jax yet."""
        return self.start_s

    def load(self) -> float:
        """Importing jax and the workload, initialising the device, building the state."""
        if self.load_s is None:
            return self.first_load_s
        return max(self.floor_s, self.compile_factor * self.load_s)

    def probe(self, names: int) -> float:
        """Asking about `names` options: milliseconds each, after one lowering of the step."""
        return self.first_steps_s + 0.1 * names

    def compile(self, variants: int, *, threads: int = 1) -> float:
        """Compiling `variants`, `threads` at once: one may be `compile_factor` times slower, not all.

        Threads may not help at all (they don't on a CPU, nor while autotuning is cold): one after another fits, too.
        """
        if self.compile_s is None:
            return self.first_compile_s * max(1, -(-variants // threads))
        slowest = max(self.floor_s, self.compile_factor * self.compile_s)
        return max(slowest * (1 + max(0, variants - 1) / (3 * threads)), 2 * variants * self.compile_s)

    def round(self, arms: Sequence[Arm]) -> float:
        """Timing `arms`, each with its discarded steps."""
        return self._steps(sum(arm.opening + arm.warm_up + arm.steps for arm in arms))

    def numerics(self, steps: int) -> float:
        """One step and `steps` steps from the initial state, and comparing every leaf on the host."""
        return self.first_steps_s + self._steps(steps + 1)

    def pgle(self, runs: int) -> float:
        """Two compiles and `runs` traced steps, with aggregation."""
        return self.compile(2) + self.profile(runs)

    def profile(self, steps: int, block: int = 0) -> float:
        """Tracing `steps` steps, after some blocks of `block`, warm-up included: a trace slows them and takes its time
        to be written."""
        return self.first_steps_s + self._steps(10 * (steps + block))

    def release(self) -> float:
        return self.floor_s

    def _steps(self, steps: int) -> float:
        if self.step_s is None:
            return self.first_steps_s
        return self.floor_s + self.factor * self.step_s * steps
