"""Modules as functions of their parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from polyhal.hal.errors import message
from polyhal.hal.ops import FUNCTIONS
from polyhal.nn.batch_norm import BatchNorm
from polyhal.nn.module import Module
from polyhal.tensor import Tensor


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]],
    args: Tensor | Sequence[Tensor] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Return `module(*args, **kwargs)` with other tensors in place of its parameters and buffers.

    `parameter_and_buffer_dicts` maps names of the state dict to tensors; a name that is absent keeps its own. A parameter that
    several modules share is replaced everywhere, unless `tie_weights` is False. Raises KeyError for unknown names, and with
    `strict` for missing ones.

    >>> layer = polyhal.nn.Linear(2, 1)
    >>> weights = {"weight": polyhal.ones(1, 2), "bias": polyhal.zeros(1)}
    >>> polyhal.func.functional_call(layer, weights, (polyhal.tensor([1.0, 2.0]),)).tolist()
    [3.0]
    """
    dicts = parameter_and_buffer_dicts
    given = dict(dicts) if isinstance(dicts, Mapping) else {k: v for d in dicts for k, v in d.items()}
    inputs = args if isinstance(args, tuple) else () if args is None else (args,)
    with replaced(module, given, tie_weights=tie_weights, strict=strict):
        return module(*inputs, **(kwargs or {}))


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Make the batch norms of a model, in place, use only the statistics of the batch. Returns the model.

    A function that is transformed by `vmap` or a derivative may not change running statistics.
    """
    for module in root.modules():
        if isinstance(module, BatchNorm):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the parameters and the buffers of models of one kind, each stacked along a new first axis, for `vmap`.

    The stacked parameters are leaves that require gradients as the first model's do. Raises ValueError for no models.
    """
    if not models:
        raise ValueError(message("stack_module_state", "no models", expected="at least one"))

    def stacked(named: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        result = {}
        for name, first in named[0].items():
            tensor: Tensor = FUNCTIONS["stack"]([n[name].detach() for n in named])
            result[name] = tensor.requires_grad_() if first.requires_grad else tensor
        return result

    return stacked([dict(m.named_parameters()) for m in models]), stacked([dict(m.named_buffers()) for m in models])


@contextmanager
def replaced(
    module: Module, given: Mapping[str, Tensor], *, tie_weights: bool = True, strict: bool = False
) -> Iterator[None]:
    """Put other tensors in place of the parameters and buffers of `module` inside the block; see `functional_call`."""
    places = _places(module)
    unknown = sorted(given.keys() - places.keys())
    missing = sorted(places.keys() - given.keys()) if strict else []
    if unknown or missing:
        problem = f"unknown names {unknown}" if unknown else f"missing names {missing}"
        raise KeyError(message("functional_call", problem, expected="names of named_parameters and named_buffers"))
    previous: list[tuple[dict[str, Any], str, Any]] = []
    by_tensor = {id(places[name][0][places[name][1]]): value for name, value in given.items()} if tie_weights else {}
    try:
        for name, (fields, attribute) in places.items():
            current = fields[attribute]
            value = given.get(name, by_tensor.get(id(current)))
            if value is not None:
                previous.append((fields, attribute, current))
                fields[attribute] = value
        yield
    finally:
        for fields, attribute, current in reversed(previous):
            fields[attribute] = current


def _places(module: Module) -> dict[str, tuple[dict[str, Any], str]]:
    """Where each parameter and buffer is kept, by its name: registries hold names, and attributes the tensors."""
    places = {}
    for prefix, part in module._walk("", None):
        for attribute in (*part._parameters, *part._buffers):
            if part.__dict__[attribute] is not None:
                places[f"{prefix}.{attribute}" if prefix else attribute] = (part.__dict__, attribute)
    return places
