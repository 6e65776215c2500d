"""Containers of modules edited, printed and joined as in PyTorch; extra state, buffers and assignment of states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import polyhal as ph
from polyhal import nn


def layers(library: Any, *widths: int) -> list[Any]:
    options = {"device": "numpy"} if library is nn else {}
    return [library.Linear(2, width, **options) for width in widths]


EDITS: list[Callable[[Any, Any], Any]] = [
    lambda library, m: m.insert(1, layers(library, 9)[0]),
    lambda library, m: m.insert(0, layers(library, 9)[0]),
    lambda library, m: m.insert(len(m), layers(library, 9)[0]),
    lambda library, m: m.pop(0),
    lambda library, m: m.pop(-1),
    lambda library, m: m.__delitem__(1),
    lambda library, m: m.__delitem__(slice(1, None)),
    lambda library, m: m.extend(layers(library, 5, 6)),
    lambda library, m: m.__iadd__(library.Sequential(*layers(library, 5))),
    lambda library, m: m.__setitem__(-1, library.Tanh()),
]


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("kind", ["Sequential", "ModuleList"])
def test_an_edited_container_has_the_modules_and_names_that_pytorch_has(
    kind: str, edit: Callable[[Any, Any], Any]
) -> None:
    texts = []
    for library in (nn, torch.nn):
        modules = layers(library, 3, 4, 4)
        container = getattr(library, kind)(*([modules] if kind == "ModuleList" else modules))
        edit(library, container)
        texts.append((repr(container), list(container.state_dict())))
    assert texts[0] == texts[1]


def test_joined_containers_print_as_in_pytorch() -> None:
    texts = []
    for library in (nn, torch.nn):
        a, b, c = layers(library, 3, 3, 4)
        pair = library.Sequential(a, library.Sequential(b))
        named = library.Sequential({"x": a, "y": c}) if library is nn else library.Sequential()
        if library is torch.nn:
            named.add_module("x", a)
            named.add_module("y", c)
        joined = library.ModuleList([a]) + list(library.Sequential(b, c, library.Sequential(c), library.Sequential(c)))
        texts.append([repr(m) for m in (pair + named, pair * 2, 2 * pair, joined, library.ModuleList(), named[1:])])
    assert texts[0] == texts[1]


def test_appending_to_a_slice_replaces_nothing() -> None:
    part = nn.Sequential(*layers(nn, 2, 2, 2))[1:]
    part.append(nn.Tanh())
    assert [type(m).__name__ for m in part] == ["Linear", "Linear", "Tanh"]


def test_an_index_beyond_a_container_is_an_error() -> None:
    with pytest.raises(IndexError):
        nn.Sequential().insert(1, nn.Tanh())
    with pytest.raises(IndexError):
        nn.ModuleList().pop()


def test_a_module_dictionary_can_be_emptied() -> None:
    table = nn.ModuleDict([("a", nn.Tanh()), ("b", nn.ReLU())])
    assert isinstance(table.pop("a"), nn.Tanh)
    assert list(table.keys()) == ["b"]
    table.clear()
    assert len(table) == 0
    with pytest.raises(KeyError):
        table.pop("b")


def test_a_parameter_dictionary_joins_and_sets_defaults() -> None:
    first = nn.ParameterDict({"a": nn.Parameter(ph.ones((1,), device="numpy"))})
    second = first | nn.ParameterDict({"b": nn.Parameter(ph.zeros((1,), device="numpy"))})
    assert list(second) == ["a", "b"]
    assert second["a"] is first["a"]
    assert second.setdefault("a") is first["a"]
    assert list(reversed(second)) == ["b", "a"]
    assert second.popitem()[0] == "b"
    assert list(first.copy().keys()) == ["a"]


def test_a_submodule_is_replaced_by_its_path() -> None:
    model = nn.Sequential(nn.Sequential(nn.Tanh()))
    model.set_submodule("0.0", nn.ReLU())
    model.set_submodule("0.new", nn.ReLU())
    assert [name for name, _ in model.named_modules()] == ["", "0", "0.0", "0.new"]
    with pytest.raises(AttributeError):
        model.set_submodule("0.other", nn.ReLU(), strict=True)


def test_shared_modules_are_named_once_or_under_each_name() -> None:
    shared = nn.Tanh()
    model = nn.Sequential(shared, shared)
    assert [name for name, _ in model.named_modules()] == ["", "0"]
    assert [name for name, _ in model.named_modules(remove_duplicate=False)] == ["", "0", "1"]
    assert [name for name, _ in model.named_modules({shared}, "top")] == ["top"]


class Counter(nn.Module):
    """Module with a number in addition to its tensors."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count
        self.total = nn.Buffer(ph.zeros((2,), device="numpy"))
        self.scratch = nn.Buffer(ph.zeros((2,), device="numpy"), persistent=False)

    def get_extra_state(self) -> int:
        return self.count

    def set_extra_state(self, state: int) -> None:
        self.count = state


def test_extra_state_and_buffers_belong_to_the_state() -> None:
    source, target = nn.Sequential(Counter(3)), nn.Sequential(Counter(0))
    state = source.state_dict()
    assert list(state) == ["0.total", "0._extra_state"]
    assert sorted(name for name, _ in source.named_buffers()) == ["0.scratch", "0.total"]
    target.load_state_dict(state)
    assert target[0].count == 3  # type: ignore[attr-defined]
    with pytest.raises(nn.StateDictError, match="_extra_state"):
        target.load_state_dict({"0.total": np.zeros(2)})


def test_the_prefix_of_a_state_is_put_before_its_names_as_it_is() -> None:
    assert list(nn.Linear(1, 1, device="numpy").state_dict("model_")) == ["model_weight", "model_bias"]


def test_assigned_state_replaces_the_tensors_and_keeps_ties() -> None:
    a, b = layers(nn, 2, 2)
    b.weight = a.weight
    model = nn.Sequential(a, b)
    state = {k: v.to("float64") for k, v in model.state_dict().items()}
    old = a.weight
    model.load_state_dict(state, assign=True)
    assert a.weight is b.weight
    assert a.weight is not old
    assert isinstance(a.weight, nn.Parameter)
    assert a.weight.dtype is ph.float64
    assert a.weight.requires_grad


def test_a_module_that_contains_itself_has_a_form() -> None:
    model = nn.Sequential(nn.Linear(2, 3, device="numpy"))
    model.append(model)
    linear = "Linear(in_features=2, out_features=3, bias=True)"
    assert repr(model) == f"Sequential(\n  (0): {linear}\n  (1): (contains itself)\n)"
    assert model._repr_html_().count("Linear") == 1
    modules = nn.ModuleList([nn.ReLU()])
    modules.append(modules)
    assert repr(modules) == "ModuleList(\n  (0): ReLU()\n  (1): (contains itself)\n)"
