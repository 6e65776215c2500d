"""The precision of float32 products: a setting that reaches `lower` and never a stale plan."""

from dataclasses import replace

import numpy as np
import pytest

import polyhal
from polyhal.backends.numpy.backend import NumpyBackend, probe
from polyhal.hal.device import Device
from polyhal.hal.precision import PrecisionError
from polyhal.hal.protocol import Declined


class _Noting(NumpyBackend):
    """Notes the precision that each op is lowered with."""

    def __init__(self, *precisions: str) -> None:
        super().__init__(probe()[0])
        self.capabilities = replace(self.capabilities, precisions=frozenset(precisions))
        self.seen: list[tuple[str, object]] = []

    def lower(self, op, inputs, outputs, params):
        self.seen.append((op, params.get("precision")))
        return Declined("to see what was asked")


def test_products_are_lowered_with_the_precision_in_force():
    device = Device.opened("noting", _Noting("highest", "high"))
    x = polyhal.tensor(np.ones((2, 2), np.float32), device=device)
    _ = x @ x
    with polyhal.float32_matmul_precision("high"):
        assert polyhal.get_float32_matmul_precision() == "high"
        _ = x @ x
        _ = x + x
        _ = x @ x
    _ = x @ x
    assert polyhal.get_float32_matmul_precision() == "highest"
    assert device.backend.seen == [("matmul", "highest"), ("matmul", "high"), ("add", None)]


@pytest.mark.parametrize(("precisions", "told"), [(("highest",), None), (("highest", "medium"), "highest")])
def test_backends_are_told_of_no_precision_that_they_do_not_list(precisions, told):
    device = Device.opened("noting", _Noting(*precisions))
    x = polyhal.tensor(np.ones((2, 2), np.float32), device=device)
    with polyhal.float32_matmul_precision("high"):
        _ = x @ x
    assert device.backend.seen == [("matmul", told)]


def test_an_unknown_precision_is_refused_and_changes_nothing():
    with pytest.raises(PrecisionError, match="got 'low'; expected 'highest', 'high' or 'medium'"):
        polyhal.set_float32_matmul_precision("low")
    assert polyhal.get_float32_matmul_precision() == "highest"
