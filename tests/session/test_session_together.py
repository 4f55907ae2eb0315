"""What several ranks say, as one: the slowest block, the worst leaf."""

from __future__ import annotations

from tuner.protocol.codec import from_json, to_json
from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import Block, LeafStats, NumericsReply, ProfileReply
from tuner.session.together import slowest, together, worst


def block(seconds: float) -> Block:
    return Block(id="a", steps=2, seconds=seconds, first_s=0.1, ranks_s=(0.5, 0.6))


def leaf(**fields: object) -> LeafStats:
    given = {"path": "out", "dtype": "float32", "size": 4, "steps": 1, "l2": 0.0, "slope": 0.0, "masks_equal": True}
    return LeafStats(**{**given, **fields})  # type: ignore[arg-type]


def test_a_gang_is_as_fast_as_its_slowest_rank() -> None:
    assert slowest([block(1.0), block(1.2), block(1.1)]) == block(1.2)


def test_one_failure_is_the_gangs() -> None:
    failure = Failure(kind=FailureClass.RUNTIME, phase="round", message="no", rank=1)
    assert slowest([block(1.0), failure]) == failure


def test_rank_0s_profile_holds_the_others_in_order_and_survives_the_pipe() -> None:
    whole = together([ProfileReply(xplane=f"rank-{rank}", seconds=1.0) for rank in range(3)])
    assert (whole.xplane, [reply.xplane for reply in whole.ranks]) == ("rank-0", ["rank-1", "rank-2"])
    assert from_json(ProfileReply, to_json(whole)) == whole


def test_each_statistic_of_a_leaf_is_the_worst_ranks() -> None:
    one = leaf(l2=0.1, slope=0.4, travel=0.5, moved_l2=None)
    other = leaf(l2=0.3, slope=0.2, masks_equal=False, travel=None, still=True)
    (found,) = worst([NumericsReply(leaves=(one,)), NumericsReply(leaves=(other,))]).leaves
    assert found == leaf(l2=0.3, slope=0.4, masks_equal=False, travel=0.5, still=True)


def test_a_check_holds_if_it_holds_on_every_rank() -> None:
    yes, no = (NumericsReply(leaves=(), check=value, check_message=str(value)) for value in (True, False))
    assert worst([yes, yes]).check is True
    assert (worst([yes, no]).check, worst([yes, no]).check_message) == (False, "False")
    assert worst([NumericsReply(leaves=())]).check is None
