"""The module API where it follows PyTorch's: modes, hooks, names, parametrizations, containers of parameters, lazy layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import polyhal as ph
from polyhal import nn
from polyhal.hal.errors import ShapeError
from polyhal.nn.utils import parametrizations, parametrize

from .compare import array, check_layer, close


class Frozen(nn.BatchNorm1d):
    """A layer that remains in evaluation when its parent is set to training."""

    def train(self, mode: bool = True) -> Frozen:
        super().train(False)
        return self


def test_train_and_eval_call_overridden_methods_of_children() -> None:
    model = nn.Sequential(nn.Linear(2, 2, device="numpy"), Frozen(2, device="numpy"), nn.Dropout())
    model.train()
    assert [m.training for m in model] == [True, False, True]
    model.eval()
    assert not any(m.training for m in model.modules())


def test_zero_grad_can_keep_zeros() -> None:
    layer = nn.Linear(2, 2, device="numpy")
    layer(ph.ones((1, 2), device="numpy")).sum().backward()
    layer.zero_grad(set_to_none=False)
    assert layer.weight.grad is not None
    assert layer.weight.grad.tolist() == [[0, 0], [0, 0]]
    layer.zero_grad()
    assert layer.weight.grad is None


def test_to_takes_keywords() -> None:
    layer = nn.Linear(2, 2, device="numpy").to(dtype=ph.float64)
    assert layer.weight.dtype is ph.float64
    assert layer.to(device="numpy", dtype="float32").weight.dtype is ph.float32


def test_members_are_found_by_path() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3, device="numpy"))
    assert model.get_parameter("0.weight") is model[0].weight
    assert model.get_buffer("0.running_mean") is model[0].running_mean
    with pytest.raises(AttributeError, match="no parameter 'nothing'"):
        model.get_parameter("0.nothing")


def test_hooks_see_keywords_and_exceptions() -> None:
    layer: Any = nn.Identity()
    seen: list[Any] = []
    layer.forward = lambda x, scale: x * scale
    layer.register_forward_pre_hook(lambda m, a, k: (a, {"scale": k["scale"] + 1}), with_kwargs=True)
    layer.register_forward_hook(lambda m, a, k, out: seen.append((k, out)), with_kwargs=True, always_call=True)
    assert layer(2, scale=3) == 8
    with pytest.raises(TypeError):
        layer(None, scale=1)
    assert seen == [({"scale": 4}, 8), ({"scale": 2}, None)]


def test_a_hook_can_go_first() -> None:
    layer, order = nn.Identity(), list[int]()
    layer.register_forward_hook(lambda m, a, out: order.append(1))
    layer.register_forward_hook(lambda m, a, out: order.append(2), prepend=True)
    layer(0)
    assert order == [2, 1]


def test_backward_hooks_agree_with_pytorch(device: ph.Device) -> None:
    ours, theirs = nn.Linear(3, 2, device=device), torch.nn.Linear(3, 2)
    ours.load_state_dict(theirs.state_dict())
    found: list[Any] = []
    for layer in (ours, theirs):
        layer.register_full_backward_pre_hook(lambda m, of_results: (of_results[0] * 2,))
        layer.register_full_backward_hook(lambda m, of_arguments, of_results: found.append((of_arguments, of_results)))
    x = array(4, 3)
    a, b = ph.tensor(x, device=device, requires_grad=True), torch.tensor(x, requires_grad=True)
    ours(a).sum().backward()
    theirs(b).sum().backward()
    (mine, expected) = found
    close(mine[0][0], expected[0][0])
    close(mine[1][0], expected[1][0])
    close(a.grad, b.grad)
    close(ours.weight.grad, theirs.weight.grad)


@pytest.mark.parametrize("name", ["weight_norm", "spectral_norm"])
def test_parametrizations_agree_with_pytorch(device: ph.Device, name: str) -> None:
    ours = getattr(parametrizations, name)(nn.Linear(4, 3, device=device))
    theirs = getattr(torch.nn.utils.parametrizations, name)(torch.nn.Linear(4, 3))
    check_layer(ours, theirs, array(2, 4), device=device, tolerance=1e-4)


def test_a_parametrization_can_be_removed_and_assigned_through() -> None:
    layer = parametrizations.weight_norm(nn.Linear(4, 3, device="numpy"))
    value = array(3, 4)
    layer.weight = ph.tensor(value, device="numpy")
    close(layer.weight, value)
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear
    assert list(layer.state_dict()) == ["bias", "weight"]
    close(layer.weight, value)


def test_lists_and_dictionaries_of_parameters() -> None:
    values = nn.ParameterList([ph.ones((2,), device="numpy"), ph.zeros((3,), device="numpy")])
    assert list(values.state_dict()) == ["0", "1"]
    assert len(values[:1]) == 1
    named = nn.ParameterDict({"a": ph.ones((2,), device="numpy")})
    named["b"] = ph.zeros((1,), device="numpy")
    assert list(named.state_dict()) == ["a", "b"] == list(named.keys())
    assert [p.requires_grad for p in (*values, *named.values())] == [True] * 4


def test_a_lazy_layer_becomes_a_layer_of_its_first_inputs_width() -> None:
    model = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.ReLU())
    assert [type(p) for p in model.parameters()] == [nn.UninitializedParameter] * 4
    model.eval()
    assert model(ph.ones((3, 5), device="numpy")).shape == (3, 4)
    assert [type(m) for m in model] == [nn.Linear, nn.BatchNorm1d, nn.ReLU]
    assert model[0].weight.shape == (4, 5)
    assert not model[1].training


def test_adaptive_log_softmax(device: ph.Device) -> None:
    ours = nn.AdaptiveLogSoftmaxWithLoss(8, 12, [3, 7], 2.0, device=device)
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(8, 12, [3, 7], 2.0)
    target = np.array([0, 5, 11, 2])
    check_layer(ours, theirs, array(4, 8), target, device=device, call=lambda layer, xs: layer(*xs).loss)


def test_older_arguments_of_losses_choose_the_reduction() -> None:
    x, y = ph.ones((2, 3), device="numpy"), ph.zeros((2, 3), device="numpy")
    assert nn.MSELoss(reduce=False)(x, y).shape == (2, 3)
    assert nn.MSELoss(False)(x, y).item() == 6
    assert nn.CrossEntropyLoss(None, None, 1).ignore_index == 1
    assert nn.SmoothL1Loss(None, None, "sum", 2.0).beta == 2.0
    assert nn.Embedding(3, 2, None, 1.0, device="numpy").max_norm == 1.0


def test_batch_norm_of_a_vector_is_refused() -> None:
    one = ph.ones((3,), device="numpy")
    with pytest.raises(ShapeError, match=r"\(N, C, \.\.\.\)"):
        nn.functional.batch_norm(one, one, one)


def test_a_learned_mask_has_no_gradient_where_all_is_masked(device: ph.Device) -> None:
    q = ph.ones((1, 1, 2, 4), device=device)
    mask = ph.tensor([[0.0, -np.inf], [-np.inf, -np.inf]], device=device, requires_grad=True)
    nn.functional.scaled_dot_product_attention(q, q, q, mask).sum().backward()
    assert mask.grad is not None
    assert mask.grad.tolist() == [[0, 0], [0, 0]]


def test_activations_take_inplace() -> None:
    x = ph.tensor([-1.0, 2.0], device="numpy")
    assert nn.ReLU(inplace=True)(x).tolist() == [0, 2]
    assert repr(nn.ReLU(inplace=True)) == "ReLU(inplace=True)"


def test_initial_values_of_special_kinds() -> None:
    x = ph.zeros((4, 3), device="numpy")
    assert nn.init.eye_(x).numpy().tolist() == np.eye(4, 3).tolist()
    kernel = ph.zeros((4, 2, 3), device="numpy")
    expected = torch.nn.init.dirac_(torch.empty(4, 2, 3), 2)
    assert nn.init.dirac_(kernel, 2).tolist() == expected.tolist()
    assert (nn.init.sparse_(x, 0.5).numpy() == 0).sum(0).tolist() == [2, 2, 2]
    assert nn.init.calculate_gain("relu") == torch.nn.init.calculate_gain("relu")


def test_names_of_pytorch_lead_to_their_counterparts() -> None:
    assert ph.utils.data.DataLoader is ph.data.DataLoader
    assert ph.optim.lr_scheduler.StepLR is ph.optim.StepLR


def test_a_norm_computed_before_clips_as_one_computed_then() -> None:
    results = []
    for apart in (True, False):
        p = nn.Parameter(ph.ones((4,), device="numpy"))
        (p * 3.0).sum().backward()
        if apart:
            assert p.grad is not None
            nn.utils.clip_grads_with_norm_(p, 1.5, nn.utils.get_total_norm([p.grad]))
        else:
            nn.utils.clip_grad_norm_(p, 1.5)
        results.append(p.grad)
    close(results[0], [0.75] * 4)
    close(results[0], results[1])
