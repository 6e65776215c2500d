"""Modules of Polyhal that `import torch` loads; programs use the device without importing Polyhal."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

import polyhal_autoload

pytestmark = pytest.mark.slow

FIRST_USES = (
    "x = torch.ones(2, device='polyhal')",
    "x = torch.nn.Linear(2, 2).to('polyhal').weight",
    "torch.set_default_device('polyhal'); x = torch.ones(2)",
    "f = io.BytesIO(); torch.save(torch.ones(2), f); f.seek(0); x = torch.load(f, map_location='polyhal')",
    "torch.accelerator.synchronize(); x = torch.ones(2, device=torch.accelerator.current_accelerator())",
    "from torch.polyhal import memory_allocated; x = torch.ones(2).polyhal()",
)


def _run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "POLYHAL_DEVICE": "numpy", "OMP_NUM_THREADS": "1", **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


IMPORT = """
torch.manual_seed(3)
ours = [m for m in sys.modules if m.startswith("polyhal")]
print(len(ours) <= 6, "polyhal" in sys.modules, torch.device("polyhal"), torch.polyhal.is_initialized())
print(torch.accelerator.current_accelerator(), torch.accelerator.is_available(), torch.accelerator.device_count())
loader = torch.utils.data.DataLoader(torch.arange(4), pin_memory=True)
print([x.item() for x in loader], "polyhal" in sys.modules)
print(torch.rand(1, device="polyhal").item(), torch.polyhal.is_initialized())
import polyhal
polyhal.manual_seed(3)
print(polyhal.rand(1).item())
"""
FORKS = """
import io, os, sys, torch
for use in USES:
    sys.stdout.flush()
    child = os.fork()
    if not child:
        exec(use)
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, use
torch.__version__ = "2.9.1"
try:
    torch.ones(2, device="polyhal")
except ImportError as error:
    print(error)
"""


def test_importing_pytorch_loads_next_to_nothing_and_the_device_is_there_at_its_first_use() -> None:
    """Each use is the first in a forked child; an old PyTorch is this one with another number."""
    uses = [f"{use}; print(x.device, (x + 1).device)" for use in FIRST_USES]
    lines = _run(FORKS.replace("USES", repr([IMPORT, *uses]))).splitlines()
    assert lines[:3] == ["True False polyhal False", "polyhal True 1", "[0, 1, 2, 3] False"]
    assert lines[3] == f"{lines[4]} True"
    assert lines[5:-1] == ["polyhal:0 polyhal:0"] * len(FIRST_USES)
    assert lines[-1] == "polyhal.torch needs PyTorch 2.10 or later and found 2.9.1; pip install -U torch"


def test_pytorchs_compiler_is_imported_at_its_first_use_and_not_by_optimizers() -> None:
    """Each use is the first in a forked child; its modules are imported once, and compile, break and hide functions."""
    threads = """
uses = ("import torch._dynamo.utils", "from torch._dynamo import config", "assert not torch._dynamo.config.suppress_errors")
threads = [threading.Thread(target=exec, args=(use, {"torch": torch})) for use in uses * 2]
for t in threads: t.start()
for t in threads: t.join()
"""
    uses = (
        threads,
        "import torch._dynamo.repro.after_dynamo",  # a module that the package does not import
        "assert torch.compile(lambda x: x + 1)(x).tolist() == [2, 2]",
    )
    code = """
import os, sys, threading, torch
x = torch.ones(2, device="polyhal", requires_grad=True)
optimizer = torch.optim.SGD([x], lr=1.0)
optimizer.zero_grad()
optimizer.step()
package = sys.modules["torch._dynamo"]
assert not [m for m in sys.modules if m.startswith("torch._dynamo.")]
reset = torch.optim.Optimizer.zero_grad.__wrapped__
for use in ALL:
    sys.stdout.flush()
    child = os.fork()
    if not child:
        found = []
        threading.excepthook = found.append
        exec(use)
        assert not found, found
        import torch._dynamo.utils
        assert sys.modules["torch._dynamo"] is torch._dynamo is package and type(package) is type(sys)
        assert torch._dynamo.utils is sys.modules["torch._dynamo.utils"] and torch._dynamo.utils.__spec__.loader.path
        optimizer.zero_grad()
        assert reset.__dynamo_disable is not reset and package.graph_break.__module__.startswith("torch._dynamo")
        os._exit(0)
    print(os.waitpid(child, 0)[1], flush=True)
"""
    assert _run(code.replace("ALL", repr(uses))).split() == ["0"] * len(uses)


def test_without_autoload_the_import_names_the_device_unless_another_package_has() -> None:
    code = """
import os, torch
if child := os.fork():
    os.waitpid(child, 0)
    torch.utils.rename_privateuse1_backend("other")
    import polyhal_autoload
    polyhal_autoload.register()
    print(hasattr(torch, "polyhal"))
    try:
        import polyhal.torch
    except ImportError as error:
        print(error)
else:
    import polyhal.torch
    print(torch.ones(2, device="polyhal").sum().item(), torch.polyhal.device_count(), flush=True)
    os._exit(0)
"""
    first, second, third = _run(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0").splitlines()
    assert first == "2.0 1"
    assert second == "False"
    assert third.startswith("PyTorch has one device type for packages, and it is taken by 'other'")


def test_it_is_not_registered_if_pytorch_has_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    named: list[int] = []
    monkeypatch.setattr(polyhal_autoload, "name_device", lambda: named.append(1))
    polyhal_autoload.register()
    assert named == [1]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    polyhal_autoload.register()
    assert named == [1]
