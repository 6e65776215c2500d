"""Recurrent layers and cells compared with PyTorch's: packed sequences, captured steps, training, second gradients, errors.

The replay of PyTorch's database of layers (`tests/pytorch`) covers their arguments.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import polyhal as ph
from polyhal import nn
from polyhal.hal.errors import ShapeError
from polyhal.hal.ops import FUNCTIONS

from .compare import array, close

KINDS = ["RNN", "GRU", "LSTM"]
LENGTHS = [2, 5, 1, 5]


def _pair(kind: str, device: ph.Device, *args: int, **options: Any) -> tuple[Any, Any]:
    """Return a layer here and in PyTorch with the same parameters."""
    torch.manual_seed(0)
    theirs = getattr(torch.nn, kind)(*args, **options)
    ours = getattr(nn, kind)(*args, **options, device=device)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def _flat(states: Any) -> list[Any]:
    return list(states) if isinstance(states, tuple) else [states]


def _check_gradients(ours: Any, theirs: Any, found: list[Any], expected: list[Any], x: Any, y: Any) -> None:
    """Assert equal results, and equal gradients of their weighted sum."""
    weights = [array(*e.shape, seed=i) for i, e in enumerate(expected)]
    for a, b in zip(found, expected, strict=True):
        close(a, b)
    total = sum(ph.sum(a * ph.tensor(w, device=a.device)) for a, w in zip(found, weights, strict=True))
    total.backward()  # type: ignore[union-attr]
    sum((b * torch.tensor(w)).sum() for b, w in zip(expected, weights, strict=True)).backward()  # type: ignore[union-attr]
    close(x.grad, y.grad, name="gradient of the input")
    for (name, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        close(p.grad, q.grad, name=f"gradient of {name}")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_packed_sequences_run_as_in_pytorch(device: ph.Device, kind: str, bidirectional: bool) -> None:
    options: dict[str, Any] = {"proj_size": 2} if kind == "LSTM" and bidirectional else {}
    ours, theirs = _pair(kind, device, 3, 4, 2, bidirectional=bidirectional, **options)
    values = array(4, 5, 3)
    x, y = ph.tensor(values, device=device, requires_grad=True), torch.tensor(values, requires_grad=True)
    packed = nn.utils.rnn.pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
    reference = torch.nn.utils.rnn.pack_padded_sequence(y, torch.tensor(LENGTHS), True, enforce_sorted=False)
    out, states = ours(packed)
    expected, expected_states = theirs(reference)
    assert isinstance(out, nn.utils.rnn.PackedSequence)
    assert out.batch_sizes.tolist() == expected.batch_sizes.tolist()
    _check_gradients(ours, theirs, [out.data, *_flat(states)], [expected.data, *_flat(expected_states)], x, y)


@pytest.mark.parametrize("kind", KINDS)
def test_initial_states_of_packed_sequences_follow_their_order(device: ph.Device, kind: str) -> None:
    ours, theirs = _pair(kind, device, 3, 4)
    values, start = [array(n, 3, seed=n) for n in (2, 4, 3)], [array(1, 3, 4, seed=i) for i in range(2)]
    mine = tuple(ph.tensor(s, device=device) for s in start)
    other = tuple(torch.tensor(s) for s in start)
    packed = nn.utils.rnn.pack_sequence([ph.tensor(v, device=device) for v in values], enforce_sorted=False)
    reference = torch.nn.utils.rnn.pack_sequence([torch.tensor(v) for v in values], enforce_sorted=False)
    out, states = ours(packed, mine if kind == "LSTM" else mine[0])
    expected, expected_states = theirs(reference, other if kind == "LSTM" else other[0])
    for a, b in zip([out.data, *_flat(states)], [expected.data, *_flat(expected_states)], strict=True):
        close(a, b)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("in_order", [False, True])
def test_packing_and_padding_are_pytorchs(device: ph.Device, batch_first: bool, in_order: bool) -> None:
    utils, reference = nn.utils.rnn, torch.nn.utils.rnn
    lengths = sorted(LENGTHS, reverse=True) if in_order else LENGTHS
    values = array(4, 6, 2) if batch_first else array(6, 4, 2)
    packed = utils.pack_padded_sequence(ph.tensor(values, device=device), lengths, batch_first, in_order)
    expected = reference.pack_padded_sequence(torch.tensor(values), torch.tensor(lengths), batch_first, in_order)
    close(packed.data, expected.data)
    for mine, other in zip(packed[1:], expected[1:], strict=True):
        assert (mine is None) == (other is None)
        assert mine is None or sorted(mine.tolist()) == sorted(other.tolist())
    for total in (None, 7):
        padded, ends = utils.pad_packed_sequence(packed, batch_first, -1.0, total)
        theirs, their_ends = reference.pad_packed_sequence(expected, batch_first, -1.0, total)
        close(padded, theirs)
        assert ends.tolist() == their_ends.tolist()
    for a, b in zip(utils.unpack_sequence(packed), reference.unpack_sequence(expected), strict=True):
        close(a, b)


@pytest.mark.parametrize("side", ["right", "left"])
def test_sequences_are_padded_on_either_side(device: ph.Device, side: str) -> None:
    values = [array(n, 2, seed=n) for n in (2, 4, 1)]
    padded = nn.utils.rnn.pad_sequence([ph.tensor(v, device=device) for v in values], True, 0.5, side)
    close(padded, torch.nn.utils.rnn.pad_sequence([torch.tensor(v) for v in values], True, 0.5, side))
    if side == "right":
        for a, b in zip(nn.utils.rnn.unpad_sequence(padded, [2, 4, 1], True), values, strict=True):
            close(a, b)


def test_packed_data_move_to_another_dtype(device: ph.Device) -> None:
    packed = nn.utils.rnn.pack_sequence([ph.ones((3, 2), device=device), ph.ones((1, 2), device=device)])
    assert packed.to(ph.float16).data.dtype is ph.float16
    assert packed.cpu().data.device == ph.Device("numpy")
    assert packed.cpu().batch_sizes.tolist() == [2, 1, 1]


def test_lengths_that_do_not_fit_are_refused(device: ph.Device) -> None:
    x = ph.zeros((4, 2, 3), device=device)
    with pytest.raises(ShapeError, match="enforce_sorted=False"):
        nn.utils.rnn.pack_padded_sequence(x, [1, 2])
    with pytest.raises(ShapeError, match="from 1 to 4"):
        nn.utils.rnn.pack_padded_sequence(x, [4, 0])
    with pytest.raises(ShapeError, match="one for each"):
        nn.utils.rnn.pack_padded_sequence(x, [4])


def test_inputs_and_states_that_do_not_fit_are_refused(device: ph.Device) -> None:
    layer = nn.LSTM(3, 4, device=device)
    with pytest.raises(ShapeError, match="width 2"):
        layer(ph.zeros((5, 1, 2), device=device))
    with pytest.raises(ShapeError, match="initial state"):
        layer(ph.zeros((5, 1, 3), device=device), (ph.zeros((1, 2, 4), device=device),) * 2)
    with pytest.raises(ShapeError, match="at least one time step"):
        layer(ph.zeros((0, 1, 3), device=device))
    with pytest.raises(ShapeError, match="GRUCell"):
        nn.GRUCell(3, 4, device=device)(ph.zeros((2, 5), device=device))


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_start_within_pytorchs_bounds(device: ph.Device, kind: str) -> None:
    ph.manual_seed(0)  # the largest of 16 draws is below 0.2 in 3 of 100 runs
    for layer in (getattr(nn, kind)(5, 16, device=device), getattr(nn, f"{kind}Cell")(5, 16, device=device)):
        for p in layer.parameters():
            assert 0.2 < np.abs(p.numpy()).max() <= 0.25


@pytest.mark.parametrize("kind", KINDS)
def test_captured_step_equals_eager(device: ph.Device, kind: str) -> None:
    layer = getattr(nn, kind)(3, 4, 2, bidirectional=True, device=device)

    def step(x: Any) -> Any:
        out, states = layer(x)
        total = ph.sum(out * out) + sum(ph.sum(s) for s in _flat(states))
        return out, ph.grad([total], [x, *layer.parameters()])

    captured = ph.jit(step)
    for seed in range(2):
        x = ph.tensor(array(5, 2, 3, seed=seed), device=device, requires_grad=True)
        out, gradients = captured(x)
        expected, eager = step(x)
        close(out, expected.numpy())
        for a, b in zip(gradients, eager, strict=True):
            close(a, b.numpy())


@pytest.mark.parametrize("kind", KINDS)
def test_second_gradients_are_pytorchs(device: ph.Device, kind: str) -> None:
    ours, theirs = _pair(kind, device, 2, 3)
    values = array(3, 2, 2)
    x, y = ph.tensor(values, device=device, requires_grad=True), torch.tensor(values, requires_grad=True)
    (slope,) = ph.grad([ph.sum(ours(x)[0] ** 2)], [x], create_graph=True)
    found = ph.grad([ph.sum(slope**2)], [x, *ours.parameters()])
    (expected_slope,) = torch.autograd.grad((theirs(y)[0] ** 2).sum(), y, create_graph=True)
    expected = torch.autograd.grad((expected_slope**2).sum(), [y, *theirs.parameters()])
    for a, b in zip(found, expected, strict=True):
        close(a, b, 1e-4)


@pytest.mark.parametrize("captured", [False, True])
def test_lstm_learns_like_pytorchs(device: ph.Device, captured: bool) -> None:
    """To recall the symbol before the last one: the loss of each step is PyTorch's within 1 %."""
    ours, theirs = _pair("LSTM", device, 4, 8)
    head, their_head = nn.Linear(8, 4, device=device), torch.nn.Linear(8, 4)
    head.load_state_dict(their_head.state_dict())
    optimizer = ph.optim.Adam([*ours.parameters(), *head.parameters()], 0.05)
    their_optimizer = torch.optim.Adam([*theirs.parameters(), *their_head.parameters()], 0.05)

    def step(x: Any, labels: Any) -> Any:
        loss = nn.functional.cross_entropy(head(ours(x)[0][-1]), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    run = ph.jit(step) if captured else step
    rng = np.random.default_rng(0)
    losses = []
    for _ in range(40):
        symbols = rng.integers(0, 4, (6, 16))
        x = np.eye(4, dtype=np.float32)[symbols]
        loss = run(ph.tensor(x, device=device), ph.tensor(symbols[-2], device=device))
        their_loss = torch.nn.functional.cross_entropy(
            their_head(theirs(torch.tensor(x))[0][-1]), torch.tensor(symbols[-2])
        )
        their_optimizer.zero_grad()
        their_loss.backward()
        their_optimizer.step()
        losses.append((float(loss.item()), their_loss.item()))
    assert losses[-1][1] < 0.8 * losses[0][1]
    for found, expected in losses:
        assert abs(found - expected) <= 0.01 * expected


def test_the_tape_of_an_lstm_keeps_the_gates_and_not_their_terms(device: ph.Device) -> None:
    length, batch, hidden = 8, 4, 32
    layer = nn.LSTM(8, hidden, device=device)
    x = ph.ones((length, batch, 8), device=device)

    def kept() -> int:
        before = device.memory_stats().used
        out, _ = layer(x)
        used = device.memory_stats().used - before
        out.sum().backward()
        return used

    kept()  # makes plans and gradients of parameters
    # Gates (T, B, 4 H), hidden and cell states (T, B, H), and in less than half as much memory: initial and final states.
    states = length * batch * hidden * 4
    assert 6 * states <= kept() < 9 * states


def test_the_gates_must_be_kept_for_gradients(device: ph.Device) -> None:
    x, weight = (ph.ones(s, device=device, requires_grad=True) for s in ((2, 1, 4), (4, 1)))
    out, _, _ = FUNCTIONS["lstm"](x, weight, ph.zeros((1, 1), device=device), ph.zeros((1, 1), device=device))
    with pytest.raises(ValueError, match="pass keep_gates=True"):
        out.sum().backward()
