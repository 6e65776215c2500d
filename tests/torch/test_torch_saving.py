"""Files, copies and pickles of tensors on the device: contents, places, and which tensors share memory."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, load_file, load_model, save, save_model
from torch import nn


def _through_file(value: Any, *, zipped: bool = True, **options: Any) -> Any:
    file = io.BytesIO()
    torch.save(value, file, _use_new_zipfile_serialization=zipped)
    file.seek(0)
    return torch.load(file, **options)


WAYS: dict[str, Callable[[Any], Any]] = {
    "save": _through_file,
    "save in the old format": lambda x: _through_file(x, zipped=False),
    "deepcopy": copy.deepcopy,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("way", WAYS)
def test_contents_and_place_survive(torch_device: str, way: str, dtype: torch.dtype) -> None:
    x = torch.arange(6, device=torch_device).view(2, 3).to(dtype).t()
    y = WAYS[way](x)
    assert (y.device, y.dtype, y.stride()) == (x.device, x.dtype, x.stride())
    assert torch.equal(y.cpu(), x.cpu())
    y.zero_()
    assert x.cpu().any()


@pytest.mark.parametrize("way", ["save", "save in the old format", "deepcopy"])
def test_views_still_share_memory(torch_device: str, way: str) -> None:
    x = torch.arange(10.0, device=torch_device)
    whole, part = WAYS[way]([x, x[2:5]])
    whole[2] = 100
    assert part.tolist() == [100, 3, 4]
    assert x[2] == 2
    again, _ = WAYS[way]([whole, part])
    assert again.tolist() == whole.tolist()


def test_places_of_loaded_tensors(torch_device: str) -> None:
    here, there = torch.ones(2, device=torch_device), torch.ones(2)
    for mapped in ("cpu", torch.device("cpu"), {f"{torch_device}:0": "cpu"}):
        assert _through_file(here, map_location=mapped).device.type == "cpu"
    for mapped in (torch_device, torch.device(torch_device, 0), {"cpu": torch_device}):
        assert _through_file(there, map_location=mapped).device == here.device
    assert _through_file(there).device.type == "cpu"
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        _through_file(there, map_location=f"{torch_device}:1")


def test_modules(torch_device: str) -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).to(torch_device)
    for other in (_through_file(model, weights_only=False), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert {p.device for p in other.parameters()} == {p.device for p in model.parameters()}
        assert torch.equal(other[0].weight, model[0].weight)
        assert other[0].weight.untyped_storage().data_ptr() != model[0].weight.untyped_storage().data_ptr()
    with torch.device("meta"):
        empty, assigned = nn.Linear(3, 2), nn.Linear(3, 2)
    empty.to_empty(device=torch_device).load_state_dict(model[0].cpu().state_dict())
    assigned.load_state_dict(model[0].to(torch_device).state_dict(), assign=True)
    x = torch.ones(1, 3, device=torch_device)
    assert torch.equal(empty(x), model[0](x))
    assert torch.equal(assigned(x), model[0](x))


def test_safetensors(torch_device: str) -> None:
    x = torch.randn(3, 4, device=torch_device)
    assert torch.equal(load(save({"x": x}))["x"], x.cpu())


def test_storages(torch_device: str) -> None:
    x = torch.arange(6.0, device=torch_device)[1:5:2]
    storage = x.untyped_storage()
    assert storage.nbytes() == 24
    assert torch.tensor(storage.cpu().tolist(), dtype=torch.uint8).view(torch.float32).tolist() == [0, 1, 2, 3, 4, 5]
    assert storage.to(device=torch_device) is storage
    made = torch.UntypedStorage(24, device=torch_device)
    made.copy_(storage)
    assert made.clone().tolist() == storage.tolist()
    assert made[4:8].tolist() == storage.tolist()[4:8]
    y = torch.empty(0, device=torch_device).set_(made)
    assert y.tolist() == [0, 1, 2, 3, 4, 5]
    assert torch.UntypedStorage(3).nbytes() == 3
    with pytest.raises(TypeError, match="number of bytes"):
        torch.UntypedStorage([1, 2], device=torch_device)


def test_memory_is_not_sent_to_other_processes(torch_device: str) -> None:
    from torch.multiprocessing.reductions import reduce_storage

    with pytest.raises(RuntimeError, match="cannot be shared between processes"):
        reduce_storage(torch.ones(2, device=torch_device).untyped_storage())


def test_a_storage_is_freed_and_allocated_again_and_its_tensors_with_it(torch_device: str) -> None:
    x = torch.arange(6.0, device=torch_device).view(2, 3)
    storage = x.untyped_storage()
    storage.resize_(12)
    assert x[0].tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(RuntimeError, match="needs 24 bytes, and its storage has 12"):
        (x + 1).cpu()
    storage.resize_(0)
    assert storage.nbytes() == 0
    storage.resize_(24)
    x.copy_(torch.ones(2, 3))
    assert (x.T + 1).tolist() == [[2.0, 2.0]] * 3


def test_addresses_are_distinct_for_memory_and_count_bytes_in_it(torch_device: str) -> None:
    x = torch.arange(30.0, device=torch_device).reshape(6, 5)
    other, start = x.clone(), x.untyped_storage().data_ptr()
    assert x.data_ptr() == x.detach().data_ptr() == x.t().data_ptr() == start
    assert x[1:, 2:].data_ptr() == start + 7 * x.element_size()
    assert abs(other.data_ptr() - start) >= x.untyped_storage().nbytes() == x.nbytes
    assert x[:0].data_ptr() == torch.ones(2)[:0].data_ptr() == 0


def test_safetensors_saves_models_with_tied_weights(torch_device: str, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).to(torch_device)
    model[1].weight = model[0].weight
    save_model(model, tmp_path / "model.safetensors")
    assert len(load_file(tmp_path / "model.safetensors")) == 3
    other = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).to(torch_device)
    other[1].weight = other[0].weight
    load_model(other, tmp_path / "model.safetensors")
    x = torch.ones(2, 3, device=torch_device)
    assert torch.equal(other(x), model(x))


@pytest.mark.filterwarnings("ignore:.torch.jit")  # PyTorch's own, in each version of another kind
@pytest.mark.parametrize("way", ["script", "trace"])
@pytest.mark.parametrize("location", ["polyhal", "polyhal:0", "cpu", None])
def test_scripted_modules_are_written_and_read(
    torch_device: str, tmp_path: Path, way: str, location: str | None
) -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).eval().to(torch_device)
    x = torch.randn(4, 3, device=torch_device)
    scripted = torch.jit.script(model) if way == "script" else torch.jit.trace(model, x)
    torch.jit.save(scripted, tmp_path / "module.pt")
    buffer = io.BytesIO()
    torch.jit.save(scripted, buffer)
    buffer.seek(0)
    for source in (tmp_path / "module.pt", buffer):
        loaded = torch.jit.load(source, map_location=location)
        place = "cpu" if location in ("cpu", None) else torch_device
        assert {t.device.type for t in (*loaded.parameters(), *loaded.buffers())} == {place}
        assert all(p.requires_grad for p in loaded.parameters())
        assert torch.equal(loaded(x.to(place)).cpu(), model(x).cpu()) or place == "cpu"
        for a, b in zip(loaded.state_dict().values(), model.state_dict().values(), strict=True):
            assert torch.equal(a.cpu(), b.cpu())
    assert next(scripted.parameters()).device.type == torch_device


class _WithAttributes(nn.Module):
    """A module with tensors that are neither parameters nor buffers."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0, 3.0], device=device))
        self.plain = torch.tensor([5.0, 6.0, 7.0], device=device)
        self.listed = [torch.tensor([3.0, 4.0], device=device), torch.tensor([8.0])]
        self.named = {"scale": torch.tensor([0.5], device=device)}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight + self.plain + self.listed[0].sum() * self.named["scale"]


@pytest.mark.filterwarnings("ignore:.torch.jit")
@pytest.mark.parametrize("way", ["script", "trace", "freeze"])
@pytest.mark.parametrize("location", ["polyhal", "cpu"])
def test_attributes_and_constants_of_scripts_are_written_and_read(torch_device: str, way: str, location: str) -> None:
    model = _WithAttributes(torch_device).eval()
    x = torch.tensor([1.0, -1.0, 0.5])
    scripted = torch.jit.trace(model, x.to(torch_device)) if way == "trace" else torch.jit.script(model)
    if way == "freeze":
        scripted = torch.jit.freeze(scripted)
    for _ in range(2):  # the first writing leaves the module as it is
        file = io.BytesIO()
        torch.jit.save(scripted, file)
        file.seek(0)
        loaded = torch.jit.load(file, map_location=location)
        found = loaded(x.to(location))
        assert found.device.type == location
        assert torch.equal(found.cpu(), _WithAttributes("cpu")(x))
        assert torch.equal(scripted(x.to(torch_device)).cpu(), found.cpu())


def _dropout_run(device: str, steps: range, checkpoint: dict[str, Any] | None = None) -> tuple[list[float], Any]:
    """Train with dropout for some steps. Returns the losses, and a checkpoint as trainers store it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 16), nn.Dropout(0.5), nn.Linear(16, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if checkpoint is not None:
        model.load_state_dict(checkpoint["model"])
        torch.set_rng_state(checkpoint["random"])
    losses = []
    for _ in steps:
        loss = model(torch.randn(4, 3).to(device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, _through_file({"model": model.state_dict(), "random": torch.random.get_rng_state()})


def test_a_stored_state_of_random_numbers_restores_those_of_the_device(torch_device: str) -> None:
    losses, _ = _dropout_run(torch_device, range(6))
    first, checkpoint = _dropout_run(torch_device, range(3))
    torch.rand(5, device=torch_device)
    rest, _ = _dropout_run(torch_device, range(3, 6), checkpoint)
    assert first + rest == losses


def test_a_state_of_this_process_restores_the_numbers_of_the_cpu_alone(torch_device: str) -> None:
    """As on other devices: a program may repeat the CPU's numbers while those of the device go on."""
    torch.manual_seed(1)
    state = torch.get_rng_state()
    before = torch.rand(3), torch.rand(3, device=torch_device).cpu()
    torch.set_rng_state(state)
    assert torch.equal(torch.rand(3), before[0])
    assert not torch.equal(torch.rand(3, device=torch_device).cpu(), before[1])


def test_states_of_random_numbers_have_pytorchs_elements(torch_device: str) -> None:
    torch.manual_seed(1)
    torch.rand(1, device=torch_device)
    state = torch.get_rng_state()
    assert torch.equal(state, torch.default_generator.get_state())
    generator = torch.Generator()
    generator.set_state(_through_file(state))
    assert torch.equal(torch.rand(3, generator=generator), torch.rand(3))
    for plain in (state.clone(), torch.default_generator.get_state()):  # of another device
        torch.set_rng_state(_through_file(plain))
