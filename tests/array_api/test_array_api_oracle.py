"""Functions of the Array API with few calls each; `python -m tests.array_api` makes more."""

from __future__ import annotations

import inspect
from inspect import Parameter

import pytest

import polyhal
from tests.array_api.oracle import ELSEWHERE, cases, check, names

array_api_strict = pytest.importorskip("array_api_strict")
CASES = list(cases())


def test_functions_agree_with_the_oracle() -> None:
    for case in CASES:
        check(case, polyhal.Device("numpy"), 4)


def test_every_name_of_the_standard_has_a_test() -> None:
    assert set(names()) <= {case.name for case in CASES} | ELSEWHERE.keys()


def test_devices_agree_with_the_oracle(device: polyhal.Device) -> None:
    for case in CASES[::5]:
        check(case, device, 1)


@pytest.mark.parametrize("package", ["", "linalg", "fft"])
def test_signatures_have_the_parameters_of_the_standard(package: str) -> None:
    theirs, ours = (getattr(m, package) if package else m for m in (array_api_strict, polyhal))
    for name in theirs.__all__:
        standard = getattr(theirs, name)
        if not inspect.isfunction(standard) or "strict" in name:
            continue
        found = inspect.signature(getattr(ours, name)).parameters
        places = list(found.values())
        for i, wanted in enumerate(inspect.signature(standard).parameters.values()):
            named = wanted.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
            parameter = found.get(wanted.name) if named else places[i]
            assert parameter is not None, f"{name} has no {wanted.name}: {places}"
            if wanted.kind is Parameter.POSITIONAL_OR_KEYWORD:
                assert places[i] is parameter
                assert parameter.kind is wanted.kind
            elif wanted.kind is Parameter.KEYWORD_ONLY:
                assert parameter.kind in (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
