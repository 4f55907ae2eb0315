"""Which class of failure an exception is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.protocol.failure import FailureClass
from tuner.worker.failures import Refused, failure_of, first_line, place_of


class JaxRuntimeError(RuntimeError):
    """Named like jax's own: its text is the compiler's and stands alone."""


@pytest.mark.parametrize(
    ("error", "phase", "kind"),
    [
        (JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate"), "compile", "out_of_memory"),
        (JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory"), "round", "out_of_memory"),
        (JaxRuntimeError("INVALID_ARGUMENT: No such compile option: 'xla_nope'"), "compile", "unsupported"),
        (JaxRuntimeError("While setting option xla_x, '1' is not a valid bool value."), "compile", "bad_value"),
        (TypeError("(): incompatible function arguments. The following"), "compile", "bad_value"),
        (ValueError("'O9' is not a valid CompilerEffortLevel"), "compile", "bad_value"),
        (JaxRuntimeError("INTERNAL: ptxas failed"), "compile", "compile"),
        (JaxRuntimeError("INTERNAL: launch failed"), "round", "runtime"),
        (TypeError("incompatible function arguments"), "round", "runtime"),
        (MemoryError(), "compile", "host_out_of_memory"),
        (RuntimeError("Unable to initialize backend 'cuda': no driver"), "load", "platform"),
        (KeyError("w"), "load", "workload"),
        (Refused(FailureClass.WRONG_RESULT, "other shapes"), "numerics", "wrong_result"),
    ],
)
def test_the_class_follows_the_text_and_then_the_phase(error: BaseException, phase: str, kind: str) -> None:
    failure = failure_of(error, phase)
    assert failure.kind.value == kind
    assert failure.phase == phase


def test_the_message_is_the_first_line_and_the_traceback_is_kept() -> None:
    try:
        raise JaxRuntimeError("INTERNAL: first\nsecond")
    except JaxRuntimeError as error:
        failure = failure_of(error, "compile")
    assert failure.message == "INTERNAL: first"
    assert "second" in failure.traceback
    assert "test_worker_failures.py" in failure.traceback


def test_other_exceptions_are_named() -> None:
    assert first_line(KeyError("w")) == "KeyError: 'w'"
    assert first_line(MemoryError()) == "MemoryError"


def test_the_place_is_the_innermost_line_of_the_users_folder(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def outer(f):\n    f()\n")
    space: dict[str, object] = {}
    exec(compile(file.read_text(), str(file), "exec"), space)

    def inner() -> None:
        raise ValueError("elsewhere")

    with pytest.raises(ValueError, match="elsewhere") as caught:
        space["outer"](inner)  # type: ignore[operator]
    assert place_of(caught.value, tmp_path) == "mine.py:2"
    assert place_of(caught.value, tmp_path / "other") == ""
