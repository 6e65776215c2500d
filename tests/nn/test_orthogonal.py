"""Orthogonal weights compared with PyTorch's: equal states have equal weights and gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import polyhal as ph
from polyhal import nn
from polyhal.nn.utils import parametrizations

from .compare import array, close


@pytest.mark.parametrize("map_name", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (3, 5)])
def test_an_orthogonal_weight_agrees_with_pytorch(shape: tuple[int, int], map_name: str) -> None:
    rows, columns = shape
    ours = parametrizations.orthogonal(nn.Linear(columns, rows, device="numpy", dtype="float64"), "weight", map_name)  # type: ignore[arg-type]
    theirs = torch.nn.utils.parametrizations.orthogonal(
        torch.nn.Linear(columns, rows, dtype=torch.float64), "weight", map_name
    )
    with torch.no_grad():  # away from the start, and with the signs that householder keeps on the diagonal
        theirs.parametrizations.weight.original += torch.tensor(
            array(rows, columns, scale=0.3), dtype=torch.float64
        ).tril(-1)
    assert set(ours.state_dict()) == set(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict())
    close(ours.weight.detach(), theirs.weight, 1e-6)
    narrow = ours.weight if rows >= columns else ours.weight.T
    close((narrow.T @ narrow).detach(), np.eye(min(shape)), 1e-6)
    seed = array(*shape, seed=3).astype(np.float64)
    ours.weight.backward(ph.tensor(seed, device="numpy"))
    theirs.weight.backward(torch.tensor(seed))
    close(ours.parametrizations.weight.original.grad, theirs.parametrizations.weight.original.grad, 1e-6)


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
def test_an_orthogonal_weight_can_be_set(shape: tuple[int, int]) -> None:
    rows, columns = shape
    layer = parametrizations.orthogonal(nn.Linear(columns, rows, device="numpy"))
    value = np.linalg.qr(array(max(shape), min(shape)))[0]
    value = value if rows >= columns else value.T
    layer.weight = ph.tensor(value.copy(), device="numpy")  # type: ignore[assignment]
    close(layer.weight.detach(), value, 1e-5)


def test_orthogonal_refuses_vectors_and_unknown_maps() -> None:
    with pytest.raises(ValueError, match="matrix"):
        parametrizations.orthogonal(nn.Linear(2, 2, device="numpy"), "bias")
    with pytest.raises(ValueError, match="orthogonal_map"):
        parametrizations.orthogonal(nn.Linear(2, 2, device="numpy"), orthogonal_map="givens")  # type: ignore[arg-type]
