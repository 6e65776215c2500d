"""The examples in public docstrings run and print the documented results, on NumPy."""

from __future__ import annotations

import doctest
import inspect
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import polyhal
from polyhal.hal.device import Device
from tests.architecture.public_docstrings import public


def _examples() -> Iterator[doctest.DocTest]:
    """The examples of each public function and class, and of the class's own methods."""
    parser = doctest.DocTestParser()
    for name, value in public():
        methods = vars(value).items() if inspect.isclass(value) else ()
        for where, owner in [(name, value), *((f"{name}.{m}", f) for m, f in methods if inspect.isfunction(f))]:
            doc = inspect.getdoc(owner) or ""
            if ">>>" in doc:
                variables: dict[str, Any] = {**vars(sys.modules[value.__module__]), "polyhal": polyhal, "np": np}
                yield parser.get_doctest(doc, variables, where, None, None)


def test_examples_in_docstrings_give_what_they_say(numpy_device: Device, capsys: pytest.CaptureFixture[str]) -> None:
    tests = list(_examples())
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for test in tests:
        runner.run(test)
    assert runner.failures == 0, capsys.readouterr().out
    assert len(tests) >= 180
