"""The numerics request: a candidate's outputs after one and after several steps, against the control's."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tuner.protocol.failure import FailureClass
from tuner.protocol.messages import LeafStats, Numerics, NumericsReply
from tuner.worker import shards
from tuner.worker.failures import Refused, first_line
from tuner.worker.groups import Pair, differences
from tuner.worker.precise import precise_reference
from tuner.worker.reference import SAMPLES, Leaf, Reference, Writing, collected, file_of, read, stamp_of
from tuner.worker.saved import Saved, is_key, restored, words_of
from tuner.worker.session import WorkerSession
from tuner.worker.stats import Start
from tuner.worker.wait import wait

__all__ = ["check_numerics"]

_OTHER = 0.1  # of a norm, or of the values: by so much no setting moves an input that a workload makes


def check_numerics(session: WorkerSession, request: Numerics) -> NumericsReply:
    """Run the candidate from the initial state and compare each output leaf with the reference, or become it. A precise
    reference is made from the step's trace instead.

    The live state is left where the run ended, marked to be restored. Raises Refused: PROTOCOL for a reference of
    other horizons, WRONG_RESULT if the outputs don't even have the reference's leaves and shapes.
    """
    if request.steps < 1:
        raise Refused(FailureClass.PROTOCOL, f"numerics over {request.steps} steps")
    if request.save and request.precise:
        return _saved(session, precise_reference(session, request.steps), request)
    reference = None if request.save else _reference(session, request)
    if reference is not None and 0 in reference.horizons:
        session.state.adopt(reference.horizons[0], _paths(session))
    horizons: dict[int, tuple[Leaf, ...]] = _inputs(session)
    stats: list[LeafStats] = []
    starts: list[Start | None] | None = None
    passed, message = None, ""
    candidate = session.candidate(request.id)
    try:
        session.state.reset(nudge=request.nudge, size=request.nudge_size)
        for steps in dict.fromkeys((1, request.steps)):
            with candidate.configured():
                first = steps == 1
                out = session.state.first(candidate.call) if first else session.state.advance(candidate.call, steps - 1)
                wait(out)
            last = steps == request.steps
            if starts is None and (last or request.nudge):
                starts = _starts(session, out, request)
            if reference is None:
                horizons[steps] = collected(out)
                if session.platform != "cpu":  # so that the programs that compare are made here, and kept for all
                    _compared(session, request, horizons[steps], out, steps, starts)
            else:
                found = _compared(session, request, reference.horizons[steps], out, steps, starts)
                stats += found if last else [_standing(leaf) for leaf in found]
        if reference is not None and session.check is not None and not request.precise:
            passed, message = _checked(session.check, reference.horizons[request.steps], out)
    finally:
        session.state.lose()
    if reference is None:
        return _saved(session, Reference(horizons), request)
    return NumericsReply(
        leaves=tuple(stats),
        check=passed,
        check_message=message,
        precision=reference.precision,
        other_inputs=_other_inputs(session, reference),
    )


def _paths(session: WorkerSession) -> dict[str, tuple[str, ...]]:
    return {part.name: part.step.inputs.paths for part in session.parts}


def _inputs(session: WorkerSession) -> dict[int, tuple[Leaf, ...]]:
    """What a reference tells before the first step: the inputs, where another process could have others, or enough of
    them to know."""
    paths = _paths(session)
    return {0: session.state.inputs(paths)} if session.adopts else {SAMPLES: session.state.samples(paths)}


def _other_inputs(session: WorkerSession, reference: Reference) -> tuple[str, ...]:
    """The inputs of which more differs from the reference's than the settings under which they were made can do."""
    if SAMPLES not in reference.horizons or reference.part != session.part:
        return ()
    pairs = zip(reference.horizons[SAMPLES], session.state.samples(_paths(session)), strict=False)
    return tuple(own.path for told, own in pairs if told.path != own.path or _are_others(told.data, own.data))


def _are_others(told: np.ndarray[Any, Any], own: np.ndarray[Any, Any]) -> bool:
    if told.shape != own.shape:
        return True
    if own.dtype.kind == "b":
        return bool(np.mean(told != own) > _OTHER)
    wide = np.complex128 if own.dtype.kind == "c" else np.float64
    one, other = told.astype(wide), own.astype(wide)
    return bool(np.linalg.norm(one - other) > _OTHER * np.linalg.norm(one))


def _saved(session: WorkerSession, reference: Reference, request: Numerics) -> NumericsReply:
    session.quiet()
    rank, _ = session.part
    session.writing = Writing(replace(reference, part=session.part), file_of(Path(request.reference), rank))
    if request.precise:
        session.quiet()  # another process may be the next to read it
    return NumericsReply(leaves=(), precision=reference.precision)


def _reference(session: WorkerSession, request: Numerics) -> Reference:
    path, own = Path(request.reference), file_of(Path(request.reference), session.part[0])
    if session.writing is not None and session.writing.path == own:
        reference = session.writing.reference
    else:
        path = own if own.exists() else path
        reference = session.references.get(stamp_of(path)) or read(path, session.part)
        session.references = {stamp_of(path): reference}
    if missing := {1, request.steps} - reference.horizons.keys():
        have = ", ".join(str(steps) for steps in sorted(reference.horizons) if steps > 0)
        message = f"{path} holds outputs after {have} steps, not after {', '.join(map(str, missing))}"
        raise Refused(FailureClass.PROTOCOL, message)
    return reference


def _starts(session: WorkerSession, out: Any, request: Numerics) -> list[Start | None]:
    """Where each leaf of `out` that takes an input's place began. Of interest after the last step, and wherever a nudge
    has to be taken off again: reading the inputs too makes a comparison half as long again, and what a step doesn't
    move it doesn't move in several."""
    plain = session.state.starts(out)
    moved = plain
    if request.nudge:
        moved = session.state.starts(out, nudge=request.nudge, size=request.nudge_size)
    return [None if s is None or t is None else Start(s, t) for s, t in zip(plain, moved, strict=True)]


def _standing(leaf: LeafStats) -> LeafStats:
    """`leaf` without what is told after the last step alone."""
    return replace(leaf, travel=None, moved_l2=None, moved_slope=None, still=False)


def _compared(
    session: WorkerSession,
    request: Numerics,
    reference: tuple[Leaf, ...],
    out: Any,
    steps: int,
    starts: Sequence[Start | None] | None,
) -> list[LeafStats]:
    flat, _ = jax.tree_util.tree_flatten_with_path(out)
    paths = ["out" + jax.tree_util.keystr(path) for path, _ in flat]
    if paths != [leaf.path for leaf in reference]:
        raise Refused(
            FailureClass.WRONG_RESULT, f"the outputs have {len(paths)} leaves, not the reference's {len(reference)}"
        )
    folder = Path(request.reference).parent / "programs"

    def run(function: Any, *args: Any) -> Any:
        return session.programs.run(function, folder, *args)

    trios = zip(reference, [array for _, array in flat], starts or [None] * len(flat), strict=True)
    found = differences(
        [_pair(*trio) for trio in trios],
        accelerator=session.platform != "cpu",
        threads=(os.cpu_count() or 1) if session.gang is None else 1,  # other ranks want the cores too
        run=run,
    )
    return [
        LeafStats(
            path=leaf.path,
            dtype=str(array.dtype),
            size=int(array.size),
            shape=tuple(array.shape),
            steps=steps,
            l2=difference.l2,
            slope=difference.slope,
            masks_equal=difference.masks_equal,
            travel=difference.travel,
            moved_l2=difference.moved_l2,
            moved_slope=difference.moved_slope,
            still=difference.still,
        )
        for leaf, (_, array), difference in zip(reference, flat, found, strict=True)
    ]


def _pair(leaf: Leaf, array: jax.Array, start: Start | None) -> Pair:
    words = words_of(array)
    reference, shape = leaf.data, words.shape
    if shards.is_spread(words):
        shape = shards.part_shape(words)
        if reference.shape == words.shape:
            reference = shards.cut(reference, words.sharding)  # made by one process, which had all of it
    if reference.shape != shape:
        message = f"{leaf.path} has shape {array.shape}, the reference {leaf.data.shape}"
        raise Refused(FailureClass.WRONG_RESULT, message)
    return Pair(reference, words, start, near=is_key(array))


def _as_array(leaf: Leaf, like: jax.Array) -> jax.Array:
    """The reference's leaf as an array, over as many processes as `like` is."""
    if not shards.is_spread(like):
        return leaf.array()
    words = words_of(like)
    data = shards.cut(leaf.data, words.sharding) if leaf.data.shape == words.shape else leaf.data
    (array,) = restored([Saved(data, words.sharding, False, leaf.key_impl, words.shape)])
    return array


def _checked(check: Callable[[Any, Any], Any], reference: tuple[Leaf, ...], out: Any) -> tuple[bool, str]:
    """What the workload's own check says: True or False, perhaps with a text; an exception is a no with its text."""
    leaves, tree = jax.tree.flatten(out)
    try:
        verdict = check(jax.tree.unflatten(tree, list(map(_as_array, reference, leaves))), out)
    except Exception as error:
        return False, first_line(error)
    if isinstance(verdict, tuple) and len(verdict) == 2:
        return bool(verdict[0]), str(verdict[1])
    if verdict is None:
        return False, "check() returned None: it must return True or False"
    return bool(verdict), ""
