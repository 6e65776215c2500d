"""The common form of messages, and the classes that callers catch."""

from __future__ import annotations

import pytest

from polyhal.hal import errors


def test_message_form() -> None:
    assert errors.message("add", "shapes differ", expected="equal ones", fix="reshape", device="opencl:1") == (
        "[add] shapes differ; expected equal ones; reshape (on opencl:1)"
    )
    assert errors.message(None, "no memory") == "no memory"


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.OutOfMemoryError, MemoryError),
        (errors.ShapeError, ValueError),
        (errors.UnsupportedDTypeError, TypeError),
        (errors.UnsupportedOpError, NotImplementedError),
        (errors.AutogradError, RuntimeError),
        (errors.NonFiniteError, ArithmeticError),
        (errors.NumberRangeError, OverflowError),
        (errors.DeviceMismatchError, ValueError),
        (errors.KernelBuildError, errors.BackendError),
        (errors.DeviceLostError, errors.BackendError),
    ],
)
def test_errors_are_subclasses_of_the_built_in_ones(error: type[Exception], builtin: type[Exception]) -> None:
    assert issubclass(error, builtin)
    assert issubclass(error, errors.PolyhalError)


def test_every_error_has_the_one_root() -> None:
    found = [v for v in vars(errors).values() if isinstance(v, type) and issubclass(v, Exception)]
    assert len(found) > 10
    assert all(issubclass(e, errors.PolyhalError) and e.__doc__ for e in found)
