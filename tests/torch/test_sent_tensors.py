"""Tensors that go to other processes: by queues, as arguments, and from workers of a `DataLoader`."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from polyhal.torch.device import current
from polyhal.torch.storages import Storage

PROGRAM = """
import sys
import torch
import torch.multiprocessing as mp


class Numbers(torch.utils.data.Dataset):
    def __init__(self, device):
        self.device = device

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.full((3,), float(index), device=self.device), index


def answer(queue, x):
    queue.put({"doubled": x * 2, "device": x.device.type})


if __name__ == "__main__":
    method = sys.argv[1]
    ones = torch.ones(3, device="polyhal")
    ones.sum().item()
    for device in ("cpu", "polyhal"):
        loader = torch.utils.data.DataLoader(
            Numbers(device), 4, num_workers=1, multiprocessing_context=method, pin_memory=device == "cpu", timeout=60
        )
        print(device, [(x.device.type, x.to("polyhal").sum().item(), n.tolist()) for x, n in loader])
    context = mp.get_context(method)
    queue = context.Queue()
    process = context.Process(target=answer, args=(queue, ones))
    process.start()
    received = queue.get(timeout=60)
    process.join()
    print(received["device"], received["doubled"].device, received["doubled"].tolist())
"""


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers_and_queues_send_tensors_of_the_device(method: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, path, method],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "POLYHAL_DEVICE": "numpy", "OMP_NUM_THREADS": "1"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    batches = [[18.0, [0, 1, 2, 3]], [66.0, [4, 5, 6, 7]]]
    assert done.stdout.splitlines() == [
        f"cpu {[('cpu', *b) for b in batches]}",
        f"polyhal {[('polyhal', *b) for b in batches]}",
        "polyhal polyhal:0 [2.0, 2.0, 2.0]",
    ]


def _sent(x: Any) -> Any:
    return pickle.loads(bytes(ForkingPickler.dumps(x)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.complex64])
def test_a_sent_tensor_is_a_copy_with_the_same_geometry(torch_device: str, dtype: torch.dtype) -> None:
    x = torch.arange(12, device=torch_device).to(dtype).view(3, 4)
    received, rows = _sent((x.t(), x[1:]))
    assert received.device == x.device
    assert received.stride() == (1, 4)
    assert torch.equal(received.cpu(), x.t().cpu())
    received.zero_()
    assert not rows.cpu().any()
    assert x.cpu().any()


def test_sent_modules_keep_parameters_and_ties(torch_device: str) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).to(torch_device)
    model[1].weight = model[0].weight
    received = _sent(model)
    assert isinstance(received[0].weight, nn.Parameter)
    assert received[0].weight.requires_grad
    with torch.no_grad():
        received[0].weight.fill_(2)
    assert received[1].weight.tolist() == [[2.0] * 3] * 3


def test_the_receiver_raises_for_a_tensor_that_cannot_be_read(
    torch_on_numpy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(storage: Storage) -> None:
        raise RuntimeError("the device was opened before the process was forked")

    x = torch.ones(3, device=torch_on_numpy)
    monkeypatch.setattr(Storage, "as_bytes", fail)
    data = bytes(ForkingPickler.dumps(x))
    with pytest.raises(
        RuntimeError, match="did not send a tensor: the device was opened before the process was forked"
    ):
        pickle.loads(data)


def test_memory_is_not_shared_with_other_processes(torch_device: str) -> None:
    x = torch.ones(3, device=torch_device)
    assert not x.is_shared()
    for share in (x.share_memory_, nn.Linear(2, 2).to(torch_device).share_memory, x.untyped_storage().share_memory_):
        with pytest.raises(RuntimeError, match=r"cannot be shared between processes: share x.cpu\(\)"):
            share()


def test_pinned_memory_is_ordinary_memory_of_the_cpu(torch_device: str) -> None:
    x = torch.ones(3)
    assert x.pin_memory() is x
    assert not x.is_pinned()
    loader = torch.utils.data.DataLoader(torch.arange(4.0), batch_size=2, pin_memory=True)
    batches = [batch.to(torch_device, non_blocking=True).tolist() for batch in loader]
    assert batches == [[0.0, 1.0], [2.0, 3.0]]
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        x.to(torch_device).pin_memory()


def test_creation_of_pinned_tensors_needs_an_allocator_in_cpp(torch_device: str) -> None:
    """PyTorch has no hook in Python for it. Since a version without this error, the row in docs/torch.md is obsolete."""
    current()
    for make in (torch.empty, torch.ones):
        with pytest.raises(NotImplementedError, match="getPinnedMemoryAllocator"):
            make(2, pin_memory=True)  # type: ignore[operator]
    with (
        pytest.raises(NotImplementedError, match="getPinnedMemoryAllocator"),
        torch.autograd.graph.save_on_cpu(pin_memory=True, device_type=torch_device),
    ):
        torch.ones(2, device=torch_device, requires_grad=True).square()
    x = torch.ones(2, device=torch_device, requires_grad=True)
    with torch.autograd.graph.save_on_cpu():
        y = x.square().sum()
    y.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 2.0]
