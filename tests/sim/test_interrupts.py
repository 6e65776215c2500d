"""Interrupts are delivered in order, also while the delivery thread is stopped and restarted."""

from __future__ import annotations

import threading

from polyhal.backends.sim.interrupts import InterruptController


def test_settling_waits_for_raised_interrupts_while_the_thread_is_stopped_repeatedly() -> None:
    controller, delivered = InterruptController("test"), list[int]()
    ended = threading.Event()

    def stop() -> None:
        while not ended.is_set():
            controller.stop()

    stopping = threading.Thread(target=stop)
    stopping.start()
    waiting = threading.Thread(target=_settle_often, args=(controller, delivered), daemon=True)
    waiting.start()
    waiting.join(60)
    ended.set()
    stopping.join()
    assert not waiting.is_alive(), "settle() waits for an interrupt that is never delivered"
    assert delivered == list(range(2000))


def _settle_often(controller: InterruptController, delivered: list[int]) -> None:
    for i in range(2000):
        controller.deliver(lambda i=i: delivered.append(i))  # type: ignore[misc]
        controller.settle()
        if delivered[-1] != i:
            return
