"""Memory shared with Polyhal's own tensors; copies for NumPy; moves between devices, dtypes and orders."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import polyhal
from polyhal.torch import from_polyhal, to_polyhal


def test_polyhals_tensors_share_memory(torch_device: str) -> None:
    x = torch.arange(12.0, device=torch_device, requires_grad=True).view(3, 4)
    ours = to_polyhal(x.t())
    assert ours.tolist() == x.t().tolist()
    back = from_polyhal(ours)
    assert back.stride() == (1, 4)
    with torch.no_grad():
        x[0, 1] = 50
    assert ours[1, 0].item() == back[1, 0].item() == 50
    y = from_polyhal(polyhal.ones((2, 3), requires_grad=True) * 2)
    assert (y + 1).tolist() == [[3, 3, 3]] * 2
    with pytest.raises(ValueError, match="expected a tensor on polyhal and got one on cpu"):
        to_polyhal(torch.ones(2))
    with pytest.raises(ValueError, match="the tensor is on null"):
        from_polyhal(polyhal.ones(2, device="null"))


def test_numpy_and_dlpack(torch_device: str) -> None:
    x = torch.arange(4.0, device=torch_device)
    assert np.array_equal(x.cpu().numpy(), np.arange(4.0))
    assert torch.equal(torch.from_dlpack(polyhal.arange(4.0)).cpu(), x.cpu())
    assert np.array_equal(np.from_dlpack(to_polyhal(x)), np.arange(4.0))
    with pytest.raises(TypeError, match=r"can't convert polyhal:0 device type tensor to numpy\. Use Tensor\.cpu\(\)"):
        x.numpy()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.int64])
def test_dlpack_exports_a_copy_on_the_host(torch_device: str, dtype: torch.dtype) -> None:
    x = torch.arange(6, device=torch_device).to(dtype).view(2, 3).t()
    x = x.conj() if dtype.is_complex else x
    for out in (torch.from_dlpack(x), torch.from_dlpack(x, copy=True), torch.from_dlpack(torch.to_dlpack(x))):
        assert (out.device.type, out.dtype) == ("cpu", dtype)
        assert torch.equal(out, x.cpu().resolve_conj())
    if dtype is not torch.bfloat16:  # NumPy has none
        assert np.array_equal(np.from_dlpack(x), x.cpu().numpy(force=True))
        assert polyhal.from_dlpack(x).tolist() == x.cpu().tolist()
    with pytest.raises(BufferError, match=r"to_polyhal\(x\) shares the memory"):
        torch.from_dlpack(x, copy=False)
    with pytest.raises(BufferError, match="require gradient"):
        torch.from_dlpack(torch.ones(2, device=torch_device, requires_grad=True))


def test_dlpack_imports_to_the_device(torch_device: str) -> None:
    for source in (np.arange(3.0, dtype=np.float32), torch.arange(3.0), polyhal.arange(3.0)):
        out = torch.from_dlpack(source, device=torch_device)
        assert (out.device.type, out.tolist()) == (torch_device, [0, 1, 2])
    assert torch.from_dlpack(torch.ones(2)).device.type == "cpu"


def test_moves(torch_device: str) -> None:
    x = torch.randn(2, 3, 4, 5)
    y = x.to(torch_device, torch.float16, non_blocking=True, copy=True, memory_format=torch.channels_last)
    assert y.is_contiguous(memory_format=torch.channels_last)
    back = y.to("cpu", non_blocking=True)
    assert back.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(back, x.half())
    assert y.to(torch_device) is y
    assert y.to(torch_device, copy=True) is not y
    assert x.to(y).dtype is torch.float16
    assert x.pin_memory() is x


def test_modules_keep_their_parameters(torch_device: str) -> None:
    model = nn.Linear(3, 2).to(torch_device)
    weight = model.weight
    for move in (model.half, model.bfloat16, model.double, model.float, model.cpu, lambda: model.to(torch_device)):
        move()
        assert model.weight is weight
    assert (weight.device.type, weight.dtype) == (torch_device, torch.float32)


def test_default_devices(torch_device: str) -> None:
    with torch.device(torch_device):
        assert nn.Linear(2, 2).weight.device.type == torch.rand(2).device.type == torch_device
    try:
        torch.set_default_device(torch_device)
        assert torch.tensor([1, 2]).device == torch.get_default_device()
    finally:
        torch.set_default_device(None)


@pytest.mark.filterwarnings("ignore:The argument 'device' of Tensor:DeprecationWarning")  # PyTorch 2.10 warns of itself
def test_loaders_with_workers(torch_device: str) -> None:
    x = torch.ones(2, device=torch_device)
    loader = torch.utils.data.DataLoader(torch.arange(6.0), batch_size=2, num_workers=2, pin_memory=True)
    assert [(b.to(torch_device, non_blocking=True) + x).tolist() for b in loader] == [[1, 2], [3, 4], [5, 6]]


def test_hooks_checkpoints_and_the_profiler(torch_device: str) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh()).to(torch_device)
    seen: list[torch.device] = []
    model[0].register_forward_hook(lambda m, i, o: seen.append(o.device))
    model[0].weight.register_hook(lambda g: seen.append(g.device))
    x = torch.ones(2, 4, device=torch_device)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as profile:
        torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False).sum().backward()
    assert seen == [x.device] * 3
    assert {"aten::linear", "aten::tanh"} <= {e.key for e in profile.key_averages()}
