"""Settings of the process reach `lower` and never use a stale plan: the precision of products, the order of sums."""

from dataclasses import replace

import numpy as np
import pytest

import polyhal
from polyhal.backends.numpy.backend import NumpyBackend, probe
from polyhal.hal.core.settings.precision import PrecisionError
from polyhal.hal.core.settings.state import settings
from polyhal.hal.device import Device
from polyhal.hal.protocol import Declined


class _Noting(NumpyBackend):
    """A backend that records the settings with which each op is lowered."""

    def __init__(self, *settings: str) -> None:
        super().__init__(probe()[0])
        self.capabilities = replace(self.capabilities, settings=frozenset(settings))
        self.seen: list[tuple[str, object, object]] = []

    def lower(self, op, inputs, outputs, params):
        self.seen.append((op, params.get("precision"), params.get("deterministic")))
        return Declined("only records requests")


def test_products_are_lowered_with_the_current_precision():
    device = Device.opened("noting", _Noting("precision"))
    x = polyhal.tensor(np.ones((2, 2), np.float32), device=device)
    _ = x @ x
    with polyhal.float32_matmul_precision("high"):
        assert polyhal.get_float32_matmul_precision() == "high"
        _ = x @ x
        _ = x + x
        _ = x @ x
    _ = x @ x
    assert polyhal.get_float32_matmul_precision() == "highest"
    assert device.backend.seen == [("matmul", "highest", None), ("matmul", "high", None), ("add", None, None)]


def test_sums_are_lowered_with_the_current_order(monkeypatch):
    device = Device.opened("noting", _Noting("deterministic"))
    weight = polyhal.tensor(np.ones((2, 2), np.float32), device=device).requires_grad_()
    index = polyhal.tensor(np.zeros(3, np.int64), device=device)
    assert not polyhal.are_deterministic_algorithms_enabled()
    polyhal.nn.functional.embedding(index, weight).sum().backward()
    monkeypatch.setattr(settings, "deterministic", settings.deterministic)  # restored afterwards
    polyhal.use_deterministic_algorithms(True)
    assert polyhal.are_deterministic_algorithms_enabled()
    polyhal.nn.functional.embedding(index, weight).sum().backward()
    seen = [(order, precision) for op, precision, order in device.backend.seen if op == "scatter_rows"]
    assert seen == [(False, None), (True, None)]


def test_backends_only_receive_settings_that_they_list():
    device = Device.opened("noting", _Noting())
    x = polyhal.tensor(np.ones((2, 2), np.float32), device=device)
    with polyhal.float32_matmul_precision("high"):
        _ = x @ x
    assert device.backend.seen == [("matmul", None, None)]


def test_an_unknown_precision_is_rejected_and_changes_nothing():
    with pytest.raises(PrecisionError, match="got 'low'; expected 'highest', 'high' or 'medium'"):
        polyhal.set_float32_matmul_precision("low")
    assert polyhal.get_float32_matmul_precision() == "highest"
