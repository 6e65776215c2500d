"""`explain` of every public name: of an op, and of functions, modules and optimizers by the ops in their code."""

from __future__ import annotations

import importlib
import inspect

import pytest

import polyhal as ph
from polyhal.explanation import NAMESPACES, explanation, kind_of, names_of, ops_of, public_object
from polyhal.hal.errors import ShapeError
from polyhal.hal.ops import OPS


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("sort", "sort_pairs"),
        ("eigh", "symmetric_spectrum"),
        ("fft", "fourier"),
        ("kthvalue", "sort_pairs"),
        ("einsum", "matmul"),
        ("polyhal.linalg.svd", "singular_factors"),
        ("nn.functional.cross_entropy", "mean_cross_entropy"),
        ("nn.LSTM", "lstm"),
        ("nn.Conv2d", "conv2d"),
        ("nn.Linear", "linear"),
        ("nn.TransformerEncoderLayer", "attention"),
        ("nn.TransformerEncoderLayer", "layer_norm"),
        ("optim.AdamW", "adam_step"),
        ("optim.SGD", "sgd_step"),
        ("optim.LBFGS", "sum"),
        ("distributions.Normal", "erfinv"),
    ],
)
def test_the_ops_of_a_function_are_named(name: str, op: str) -> None:
    ops = ops_of(public_object(name))
    assert op in ops
    assert set(ops) <= set(OPS.names())
    text = ph.explain(name, "numpy")
    assert text.startswith(f"{name}: ")
    assert op in text.splitlines()[1]


def test_functions_of_one_op_are_explained_as_the_op() -> None:
    assert ph.explain("special.erf", "numpy") == ph.explain("erf", "numpy")


def test_every_public_name_has_an_explanation() -> None:
    """By its kind and the ops in its code, which are resolved in tests of ops."""
    kinds = set()
    for namespace in NAMESPACES:
        module = importlib.import_module(f"polyhal.{namespace}".rstrip("."))
        for name in names_of(module):
            dotted = f"{namespace}.{name}".lstrip(".")
            public = public_object(dotted)
            kinds.add(kind_of(public))
            assert set(ops_of(public)) <= set(OPS.names()), dotted
    assert kinds == {"function", "module", "optimizer", "class", "namespace", "constant"}


def test_names_without_ops_or_samples_have_an_explanation() -> None:
    assert ph.explain("newaxis", "numpy").startswith("newaxis: constant")
    assert ph.explain("__array_namespace_info__", "numpy").startswith("__array_namespace_info__: function: Return")
    assert ph.explain("empty", "numpy").endswith("it has no sample; give shapes to plan it")
    with pytest.raises(KeyError, match="did you mean softmax"):
        public_object("sofmax")
    with pytest.raises(KeyError, match="unknown name '__doc__'"):
        public_object("__doc__")


def test_layers_with_a_forward_pass_name_their_ops() -> None:
    """Containers and identities call none."""
    layers = {n: c for n, c in vars(ph.nn).items() if inspect.isclass(c) and issubclass(c, ph.nn.Module)}
    silent = {n for n, c in layers.items() if not ops_of(c)}
    assert silent <= {"Identity", "Module", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"}


def test_names_that_are_not_ops_take_no_shapes() -> None:
    with pytest.raises(ShapeError, match=r"shapes or parameters of eigh, which is not an op.*symmetric_spectrum"):
        ph.explain("eigh", "numpy", (3, 3))
    assert explanation("Device", "numpy").to_json()["ops"] == []
    assert explanation("float32", "numpy").kind == "constant"


def test_unknown_names_have_close_matches() -> None:
    with pytest.raises(KeyError, match="did you mean topk"):
        ph.explain("topkk", "numpy")
    with pytest.raises(KeyError, match=r"unknown name 'nn\.LSTMM'; did you mean nn\.LSTM"):
        ph.explain("nn.LSTMM", "numpy")


def test_repeated_inputs_are_counted() -> None:
    """A list of tensors in five roles is one line that can be read."""
    text = ph.explain("optim.AdamW", "numpy")
    assert (
        "adam_step(5 x (float32[7], float32[3, 5], float32[], float32[33, 2]), int64 number, 5 x float32 number)"
        in text
    )
