"""Update rules as programs, and how many launches a step of an optimizer takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from devices import PARITY_DEVICES

import polyhal as ph
from polyhal import nn, optim
from polyhal.hal import dtypes
from polyhal.hal.core import dispatch
from polyhal.hal.ops import OPS
from polyhal.hal.ops.optim.update_rule import RULES, update_rule
from polyhal.hal.ops.pointwise.fused_elementwise import reference_steps

FLAGS: dict[str, list[dict[str, Any]]] = {
    "adam_step": [{"decoupled": True}, {"amsgrad": True}],
    "sgd_step": [{"has_momentum": True, "nesterov": True}],
    "rmsprop_step": [{"has_momentum": True, "centered": True}],
    "nadam_step": [{"decoupled": True}],
    "radam_step": [{"decoupled": True}],
}
SHAPES: list[tuple[int, ...]] = [shape for _ in range(12) for shape in ((8, 8), (8,))]


@pytest.mark.parametrize("counted", [False, True], ids=["number", "tensor"])
@pytest.mark.parametrize("name", RULES)
def test_the_steps_of_a_rule_equal_its_formula(name: str, counted: bool) -> None:
    rng = np.random.default_rng(0)
    found = RULES[name]
    for chosen in ({}, *FLAGS.get(name, [])):
        flags = {**found.flags, **chosen}
        tensors = [rng.uniform(0.1, 1, 50) for _ in range(2 + len(found.states(**flags)))]
        values = {
            "lr": 0.1,
            "etas": 0.5,
            "eta_minus": 0.5,
            "eta_plus": 1.2,
            "least": 0.1,
            "most": 0.8,
            "t0": 2.0,
            "eps": 0.1,
        }
        numbers = [values.get(n, 0.75) for n in found.numbers]
        step = np.array(4.0) if counted else 4
        program = found.program((dtypes.float64,) * len(tensors), dtypes.float64 if counted else None, flags)
        own = program.numbers(*numbers) if counted else program.numbers(step, *numbers)
        params = {"count": 1, **flags, "counted": counted}
        with np.errstate(invalid="ignore"):  # a centered variance may be negative
            computed = reference_steps([*tensors, *((step,) if counted else ()), *own], program.steps)
            expected = OPS[name].reference(*tensors, step, *numbers, **params)
        for result, wanted in zip(program.results, expected, strict=True):
            np.testing.assert_allclose(computed[result], wanted, rtol=1e-12)


def test_terms_of_only_numbers_are_computed_on_the_host() -> None:
    """In single precision 1 - 0.999 is wrong by 5e-5."""
    program = RULES["adam_step"].program((dtypes.float32,) * 4, None, {"decoupled": True, "amsgrad": False})
    numbers = program.numbers(3, 0.1, 0.9, 0.999, 1e-8, 0.01)
    assert {1 - 0.9, 1 - 0.999, 0.1 / (1 - 0.9**3), 1 - 0.1 * 0.01} <= set(numbers)
    tensors = range(4)
    of_numbers = set(range(4, 4 + program.count))
    for i, (_, arguments, _) in enumerate(program.steps, 4 + program.count):
        assert not of_numbers.issuperset(arguments), i
    assert set(tensors) <= {a for _, arguments, _ in program.steps for a in arguments}


def test_steps_that_serve_all_elements_come_first() -> None:
    program = RULES["radam_step"].program(
        (dtypes.bfloat16,) * 2 + (dtypes.float32,) * 2, dtypes.float32, {"decoupled": True}
    )
    of_elements = set(range(4))
    first_of_elements = None
    for number, (_, arguments, _) in enumerate(program.steps, 4 + 1 + program.count):
        if of_elements.intersection(arguments):
            of_elements.add(number)
            first_of_elements = first_of_elements or number
        else:
            assert first_of_elements is None
    assert first_of_elements is not None
    assert first_of_elements > 4 + 1 + program.count


@pytest.fixture
def own_rule() -> Iterator[Any]:
    """The op of a rule that no backend has heard of: momentum whose size is limited."""

    def clipped(ops: Any, p: Any, g: Any, m: Any, *, t: Any, lr: Any, most: Any) -> Any:
        m = ops.minimum(ops.maximum(m * 0.9 + g, -most), most)
        return p - m * (lr / ops.sqrt(t)), m

    yield update_rule(clipped, name="clipped_step", states=lambda: ("m",), numbers=("lr", "most"), draws={"most": 0.5})
    del OPS._ops["clipped_step"], RULES["clipped_step"]


def test_a_rule_of_another_package_needs_no_kernel(device: ph.Device, own_rule: Any) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(5, 7)).astype(np.float32) for _ in range(3 * 6)]
    ps, gs, ms = ([ph.tensor(x, device=device) for x in arrays[i::3]] for i in range(3))
    inputs = (*ps, *gs, *ms, 4, 0.1, 0.5)
    dispatch.apply_into(own_rule.op, inputs, (6, False), (*ps, *ms))
    for i, (p, m) in enumerate(zip(ps, ms, strict=True)):
        p0, g, m0 = arrays[3 * i : 3 * i + 3]
        moment = np.clip(m0 * 0.9 + g, -0.5, 0.5)
        np.testing.assert_allclose(m.numpy(), moment, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(p.numpy(), p0 - moment * 0.05, rtol=1e-6, atol=1e-6)


_OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"momentum": 0.9}),
    ("Adam", {}),
    ("AdamW", {"amsgrad": True}),
    ("Adagrad", {}),
    ("Adadelta", {}),
    ("RMSprop", {"centered": True, "momentum": 0.9}),
    ("Adamax", {}),
    ("NAdam", {}),
    ("RAdam", {}),
    ("Rprop", {}),
    ("ASGD", {}),
    ("Lion", {}),
]


def _optimizers(where: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the optimizers whose launches are counted: with one, two and three states on a device that compiles slowly."""
    return _OPTIMIZERS if where.startswith("opencl") else _OPTIMIZERS[:3]


def _launches(
    device: ph.Device, name: str, settings: dict[str, Any], shapes: Sequence[tuple[int, ...]] = SHAPES
) -> list[int]:
    """Return the launches of an eager and of a captured step."""
    parameters = [nn.Parameter(ph.ones(shape, device=device)) for shape in shapes]
    for p in parameters:
        p.grad = ph.ones(p.shape, device=device)
    optimizer = getattr(optim, name)(parameters, **settings)
    optimizer.step()
    return [_launches_of(device, step) for step in (optimizer.step, ph.jit(lambda: optimizer.step(), warm_up=False))]


def _launches_of(device: ph.Device, run: Callable[[], object]) -> int:
    backend: Any = device.backend
    run()
    device.synchronize()
    backend.start_profiling()
    run()
    device.synchronize()
    return len(backend.stop_profiling())


_LAUNCH_LIMITS = {
    # Fifteen products, two ops after each pair, and ten ops around them, for all matrices of one shape.
    "Muon": (31, 50),
    # Two ops of means, two formulas of matrices, one of vectors and one of both.
    "Adafactor": (12, 24),
    # Updates, sums of squares, and the difference from the parameters; PoCL has a smaller limit for kernel parameters.
    "LAMB": (8, 20),
}
"""Maximum numbers of launches of OpenCL devices and of others, by optimizer."""
_COUNTED = [d for d in PARITY_DEVICES if d.startswith(("opencl", "wgpu"))]
_BY_ONE_RULE = [(where, *optimizer) for where in _COUNTED for optimizer in _optimizers(where)]
_BY_SEVERAL_OPS = [(where, name, {}) for where in _COUNTED for name in _LAUNCH_LIMITS]


@pytest.mark.parametrize(("where", "name", "settings"), _BY_ONE_RULE + _BY_SEVERAL_OPS)
def test_steps_take_few_launches(where: str, name: str, settings: dict[str, Any]) -> None:
    """Of 24 parameters with their states, as many for each launch as its buffers hold; none is made for a single parameter."""
    shapes = SHAPES[::2] if name == "Muon" else SHAPES
    most = _LAUNCH_LIMITS.get(name, (1, 12))[not where.startswith("opencl")]
    assert max(_launches(ph.Device(where), name, settings, shapes)) <= most


@pytest.mark.parametrize(("where", "name", "settings"), _BY_ONE_RULE)
@pytest.mark.parametrize("place", [0, 6], ids=["first", "last"])
def test_empty_parameters_are_left_out_of_launches(where: str, name: str, settings: dict[str, Any], place: int) -> None:
    device, filled = ph.Device(where), SHAPES[:6]
    shapes = [*filled[:place], (0, 3), *filled[place:]]
    assert _launches(device, name, settings, shapes) == _launches(device, name, settings, filled)


@pytest.mark.parametrize("place", [0, 2], ids=["first", "last"])
def test_empty_tensors_do_not_change_results_of_lists(device: ph.Device, place: int) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in ((5, 4), (3,))]
    xs = [ph.tensor(x, device=device) for x in arrays]
    xs.insert(place, ph.zeros((0, 3), device=device))
    factor = ph.tensor(0.5, device=device)
    squares = np.array([np.square(x.astype(np.float64)).sum() for x in arrays])
    np.testing.assert_allclose(OPS["sum_of_squares"].call(xs).item(), squares.sum(), rtol=1e-6)
    expected = np.insert(np.sqrt(squares), place, 0.0)
    np.testing.assert_allclose(OPS["norms"].call(xs).numpy(), expected, rtol=1e-6)
    *unscaled, found = OPS["unscale_all"].call([*xs, factor])
    assert found.item() == 0
    for results in (OPS["scale_all"].call([*xs, factor]), unscaled):
        assert results[place].shape == (0, 3)
        for x, result in zip(arrays, [r for i, r in enumerate(results) if i != place], strict=True):
            np.testing.assert_array_equal(result.numpy(), x * np.float32(0.5))
