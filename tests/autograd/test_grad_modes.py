"""Recording switched on and off: no_grad, enable_grad and set_grad_enabled as blocks, decorators and calls."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

import polyhal
from polyhal import Tensor
from polyhal.hal.device import Device


def test_no_grad_records_nothing(device: Device) -> None:
    x = Tensor([1.0], dtype="float32", device=device, requires_grad=True)
    with polyhal.no_grad():
        assert not polyhal.is_grad_enabled()
        assert not (x * 2).requires_grad
        with polyhal.enable_grad():
            assert (x * 2).requires_grad
    assert polyhal.is_grad_enabled()

    @polyhal.no_grad()
    def inference(v: Tensor) -> Tensor:
        return v * 2

    assert not inference(x).requires_grad
    assert not inference(x).requires_grad
    with polyhal.set_grad_enabled(False):
        assert not (x * 2).requires_grad


def test_set_grad_enabled_switches_at_once() -> None:
    polyhal.set_grad_enabled(False)
    try:
        assert not polyhal.is_grad_enabled()
        with polyhal.set_grad_enabled(True):
            assert polyhal.is_grad_enabled()
        assert not polyhal.is_grad_enabled()
        with polyhal.no_grad():
            polyhal.set_grad_enabled(True)
            assert polyhal.is_grad_enabled()
        assert not polyhal.is_grad_enabled()
    finally:
        polyhal.set_grad_enabled(True)
    assert polyhal.is_grad_enabled()


def test_set_grad_enabled_on_a_function_leaves_the_mode_outside() -> None:
    @polyhal.set_grad_enabled(False)
    def mode() -> bool:
        return polyhal.is_grad_enabled()

    assert polyhal.is_grad_enabled()
    assert not mode()
    assert not mode()
    assert polyhal.is_grad_enabled()


def test_the_mode_of_a_set_grad_enabled_block_is_restored_however_often_it_is_entered() -> None:
    off = polyhal.set_grad_enabled(False)
    for _ in range(2):
        with off:
            assert not polyhal.is_grad_enabled()
        assert polyhal.is_grad_enabled()


def test_a_decorated_function_in_two_threads_keeps_the_mode_of_each() -> None:
    inside, leave = threading.Event(), threading.Event()
    modes: list[bool] = []

    @polyhal.no_grad()
    def call(body: Callable[[], object]) -> None:
        body()

    def other() -> None:
        with polyhal.no_grad():
            call(lambda: (inside.set(), leave.wait(10)))
            modes.append(polyhal.is_grad_enabled())

    thread = threading.Thread(target=other)
    thread.start()
    assert inside.wait(10)
    call(lambda: (leave.set(), thread.join()))
    assert polyhal.is_grad_enabled()
    assert modes == [False]


def test_no_grad_ends_with_an_exception() -> None:
    with pytest.raises(KeyError), polyhal.no_grad():
        raise KeyError
    assert polyhal.is_grad_enabled()
