"""PyTorch's database of ops and sample calls (`torch.testing._internal`), which its own tests draw from."""

from __future__ import annotations

import functools
import inspect
import operator
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

_MEANINGLESS_KEYWORDS = frozenset({"memory_format", "layout", "pin_memory", "out", "generator"})
"""Keywords about PyTorch's memory and generators, which have no counterpart."""


@functools.cache
def op_database() -> tuple[Any, ...]:
    """Return all entries (`OpInfo`). The import takes half a minute and needs the package expecttest."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal import common_utils
        from torch.testing._internal.common_methods_invocations import op_db
        from torch.testing._internal.opinfo import core

    # For each list of samples it reads the source of all callers, to find a test of PyTorch's own among them: there is none.
    for module in (common_utils, core):
        module.extract_test_fn = lambda: None
    return tuple(op_db)


def entries(only: str = "") -> Iterator[Any]:
    """The entries whose name contains `only`."""
    for entry in op_database():
        if only in full_name(entry):
            yield entry


def full_name(entry: Any) -> str:
    """Name and variant of an entry, such as `std.unbiased`."""
    return f"{entry.name}.{entry.variant_test_name}" if entry.variant_test_name else str(entry.name)


def samples(
    entry: Any, dtype: torch.dtype, requires_grad: bool, without: frozenset[str] = _MEANINGLESS_KEYWORDS
) -> Iterator[Any]:
    """The sample calls of an entry in one dtype, but those with a keyword of `without`.

    Reproducible: the database draws from PyTorch's generator.
    """
    torch.manual_seed(0)
    for sample in entry.sample_inputs("cpu", dtype, requires_grad=requires_grad):
        if not without & sample.kwargs.keys():
            yield sample


def is_random(entry: Any) -> bool:
    """Return whether results are drawn: shape and dtype can be compared, and no more."""
    module, _, name = entry.name.rpartition(".")
    return (name in _RANDOM and module != "signal.windows") or "dropout" in name


_RANDOM = frozenset(
    [
        "bernoulli",
        "cauchy",
        "exponential",
        "geometric",
        "log_normal",
        "multinomial",
        "normal",
        "rand_like",
        "randint",
        "randint_like",
        "randn",
        "randn_like",
        "uniform",
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "rrelu",
        "fractional_max_pool2d",
        "fractional_max_pool3d",
        "svd_lowrank",
        "pca_lowrank",
    ]
)


def drops_elements(entry: Any, sample: Any) -> bool:
    """Return whether a call drops elements at random, by an argument that may be given by position."""
    try:
        function = operator.attrgetter(entry.name)(torch)  # `entry.op` may wrap it, without its signature
        call = inspect.signature(function).bind(sample.input, *sample.args, **sample.kwargs)
    except (AttributeError, TypeError, ValueError):  # functions in C++ have no signature
        given = sample.kwargs
    else:
        call.apply_defaults()
        given = call.arguments
    return bool(given.get("training", True)) and any(given.get(name) for name in ("dropout_p", "dropout"))


def caller(entry: Any, differentiable: bool) -> Callable[..., Any]:
    """Return a call of an entry: on symmetric or triangular matrices if its gradients are defined for such matrices."""
    from torch.testing._internal.opinfo import core as utils

    if not differentiable:
        return _plain_call
    if entry.gradcheck_wrapper is utils.gradcheck_wrapper_triangular_input_real_positive_diagonal:
        return utils.gradcheck_wrapper_triangular_input  # type: ignore[no-any-return]
    return entry.gradcheck_wrapper  # type: ignore[no-any-return]


def _plain_call(function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
    return function(*args, **keywords)
