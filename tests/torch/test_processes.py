"""Threads, forked children, and the end of the interpreter with work in flight."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
import torch
from devices import first_of

pytestmark = pytest.mark.slow

LIFE = """
import os, torch

x = torch.ones(300, 300, device="polyhal")
if not os.fork():
    for use in (lambda: (x + 1).sum(), lambda: torch.ones(2, device="polyhal")):
        try:
            use()
            print("works")
        except Exception as error:
            print(type(error).__name__, error)
    os.sys.stdout.flush()
    os._exit(0)
os.wait()
kept = [x, torch.nn.Linear(3, 3).to("polyhal"), (torch.ones(3, device="polyhal", requires_grad=True) * 2).sum()]
for _ in range(20):
    x = x @ x * 1e-3
print("left", flush=True)
"""


@pytest.mark.parametrize("device", [name for kind in ("numpy", "opencl") if (name := first_of(kind))])
def test_forks_and_exit(device: str) -> None:
    environment = {**os.environ, "POLYHAL_DEVICE": device, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", LIFE], capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")
    *children, left = done.stdout.splitlines()
    assert left == "left"
    if device == "numpy":
        assert children == ["works", "works"]
    else:
        assert children[0].startswith("RuntimeError ")
        assert 'use multiprocessing\'s start method "spawn"' in "".join(children)
        assert "works" not in children


CHILD = """
import os, torch, polyhal

polyhal.set_default_device("numpy")
torch.ones(3, device="polyhal")
if not os.fork():
    print(torch.polyhal.get_device_properties().polyhal_name, flush=True)
    os._exit(0)
os.wait()
"""


def test_a_forked_child_has_the_device_that_its_parent_set() -> None:
    environment = {k: v for k, v in os.environ.items() if k != "POLYHAL_DEVICE"}
    done = subprocess.run(
        [sys.executable, "-c", CHILD], capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "numpy\n")


def test_threads(torch_device: str) -> None:
    weight = torch.randn(8, 8, device=torch_device, requires_grad=True)
    expected = weight.detach().cpu().requires_grad_()
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(5):
                x = torch.full((4, 8), 0.1 * number, device=torch_device)
                (found,) = torch.autograd.grad((x @ weight).tanh().sum(), weight)
                (wanted,) = torch.autograd.grad((x.cpu() @ expected).tanh().sum(), expected)
                torch.testing.assert_close(found.cpu(), wanted, rtol=1e-5, atol=1e-5)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
