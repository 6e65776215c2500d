"""Random numbers from generators: the device's own, of users, and of the CPU."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

import polyhal


def test_a_seed_draws_the_numbers_of_polyhal_and_a_state_repeats_them(torch_device: str) -> None:
    torch.manual_seed(5)
    state = torch.polyhal.get_rng_state()  # type: ignore[attr-defined]
    first = torch.rand(4, device=torch_device)
    assert not torch.equal(first, torch.rand(4, device=torch_device))
    torch.polyhal.set_rng_state(state)  # type: ignore[attr-defined]
    assert torch.equal(first, torch.rand(4, device=torch_device))
    assert first.tolist() == polyhal.rand(4, generator=polyhal.random.Generator(5)).tolist()
    with torch.random.fork_rng(device_type=torch_device):
        inside = torch.rand(4, device=torch_device)
    assert torch.equal(inside, torch.rand(4, device=torch_device))
    with pytest.raises(RuntimeError, match="16 bytes"):
        torch.polyhal.set_rng_state(torch.zeros(3))  # type: ignore[attr-defined]


def test_generators_of_the_device(torch_device: str) -> None:
    generator = torch.Generator(device=torch_device).manual_seed(7)
    assert generator.device == torch.device(torch_device, 0)
    assert generator.initial_seed() == 7
    other = copy.deepcopy(generator)
    before = torch.polyhal.get_rng_state()  # type: ignore[attr-defined]
    x = torch.rand(4, generator=generator, device=torch_device)
    assert x.tolist() == polyhal.rand(4, generator=polyhal.random.Generator(7)).tolist()
    assert torch.equal(torch.polyhal.get_rng_state(), before)  # type: ignore[attr-defined]
    assert torch.equal(torch.empty(4, device=torch_device).uniform_(generator=other), x)
    assert not torch.equal(torch.rand(4, generator=generator, device=torch_device), x)
    again = pickle.loads(pickle.dumps(other))
    assert torch.equal(again.get_state(), other.get_state())
    assert torch.equal(*(torch.randn(3, generator=g, device=torch_device) for g in (again, other)))
    with pytest.raises(RuntimeError, match="one Polyhal device"):
        torch.Generator(device=f"{torch_device}:1")


def test_generators_of_the_cpu(torch_device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers are drawn on the CPU and equal the CPU's."""
    monkeypatch.setenv("POLYHAL_FALLBACK", "allow")
    here, there = torch.Generator().manual_seed(1), torch.Generator("cpu").manual_seed(1)
    for draw in (torch.randn, torch.rand):
        assert torch.equal(draw(5, generator=here, device=torch_device).cpu(), draw(5, generator=there))
    assert torch.equal(torch.randperm(5, generator=here, device=torch_device).cpu(), torch.randperm(5, generator=there))


def test_pytorchs_generators_are_still_generators(torch_device: str) -> None:
    torch.ones(1, device=torch_device)
    assert isinstance(torch.default_generator, torch.Generator)
    assert isinstance(torch.Generator(device=torch_device), torch.Generator)
    assert not isinstance(3, torch.Generator)
    assert type(torch.Generator()) is torch._C.Generator
    assert issubclass(torch._C.Generator, torch.Generator)
    loader = torch.utils.data.DataLoader(list(range(4)), shuffle=True, generator=torch.Generator(device=torch_device))
    assert sorted(x.item() for x in loader) == [0, 1, 2, 3]


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("replacement", [False, True])
def test_choices_by_weights_that_are_none_are_positions(torch_device: str, count: int, replacement: bool) -> None:
    """Nothing checks the weights, which would wait for the device, but the drawn numbers are valid indices."""
    inf, nan = float("inf"), float("nan")
    rows = [[0.0] * 5, [-1.0] * 5, [nan] * 5, [inf] * 5, [1, nan, 2, 0, 1], [1, inf, -inf, 3, 0], [0, -1, 2, -3, 0]]
    drawn = torch.multinomial(torch.tensor(rows, device=torch_device), count, replacement)
    assert 0 <= drawn.min().item() <= drawn.max().item() < 5
