"""Sharded parameters, and positions of collectives in captured steps of data parallel training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal import optim
from polyhal.hal.collectives.collective import Kind
from polyhal.hal.compile.ir.graph import Graph, Node
from polyhal.hal.compile.scheduler.cross_device import COLLECTIVE, JOIN, PEER_COPY, RECEIVE, SEND, START
from polyhal.hal.compile.scheduler.plan import StepPlan, plan_step
from polyhal.models import GPT, GPTConfig
from polyhal.nn.utils import clip_grad_norm_
from polyhal.parallel import DataParallel, Group

DEVICES = [f"sim:h200*4:{i}" for i in range(4)]
BUCKET = 70_000
"""Bytes: a block of the model has three buckets."""
BLOCKS = 4
MEMORY = "1664KiB"


def gpt(blocks: int = BLOCKS) -> GPT:
    ph.manual_seed(0)
    return GPT(GPTConfig(vocab_size=16, block_size=4, n_layer=blocks, n_head=2, n_embd=64), device="numpy")


def training(model: Any, captured: bool = True) -> Any:
    """Return a step of AdamW with clipping, on token ids and targets."""
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)

    def step(x: ph.Tensor, y: ph.Tensor) -> ph.Tensor:
        optimizer.zero_grad()
        loss = model.map(GPT.loss, x, y) if isinstance(model, DataParallel) else model.loss(x, y)
        loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return ph.jit(warm_up=False)(step) if captured else step


def sharded(devices: list[str] = DEVICES, shard: Any = "parameters", blocks: int = BLOCKS) -> DataParallel:
    return DataParallel(gpt(blocks), devices, bucket_bytes=BUCKET, shard=shard)


def batch(rng: np.random.Generator, device: str) -> tuple[ph.Tensor, ph.Tensor]:
    x = rng.integers(0, 16, (5, 4)).astype(np.int32)
    return ph.tensor(x, device=device), ph.tensor(x * 7 % 16, device=device)


def losses(step: Any, device: str, steps: int = 20) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.array([step(*batch(rng, device)).item() for _ in range(steps)])


def test_a_model_larger_than_each_device_is_trained() -> None:
    """No device has memory for the parameters of all devices."""
    model = gpt()
    alone = losses(training(model), "numpy", 5)
    assert alone[-1] < alone[0] * 0.95
    small = [f"{d},memory={MEMORY}" for d in DEVICES]
    values = losses(training(sharded(small)), small[0], 5)
    np.testing.assert_allclose(values, alone, rtol=1e-5)
    assert np.array_equal(values[:3], losses(training(sharded(shard="state")), DEVICES[0], 3)), (
        "other bits than the default"
    )
    with pytest.raises(ph.errors.OutOfMemoryError):
        losses(training(sharded(small, "state")), small[0], 1)


@pytest.fixture(scope="module")
def plans() -> dict[str, StepPlan]:
    """Return the plans of a captured step, by kind of sharding."""
    plans = {}
    for shard in ("state", "parameters"):
        step = training(sharded(shard=shard))
        losses(step, DEVICES[0], 1)
        plans[shard] = plan_step(step.steps[0].captured)
    return plans


def test_each_device_holds_its_owned_parameters_and_few_buckets() -> None:
    whole = sum(p.ref.spec.nbytes for p in gpt(8).parameters())
    x, y = batch(np.random.default_rng(0), DEVICES[0])
    arenas = {}
    for shard in ("state", "parameters"):
        report = training(sharded(shard=shard, blocks=8)).memory_report(x, y)
        for d in report.devices:
            assert d.parameters.nbytes < 0.3 * whole
            assert d.state.nbytes < 0.6 * whole
        arenas[shard] = max(d.arena.nbytes for d in report.devices)
    assert arenas["state"] > whole
    # The owned gradients; two buckets in use and one in flight; gradients of as many; activations.
    assert arenas["parameters"] < whole / 4 + 8 * BUCKET


def test_devices_without_rows_free_gathered_parameters() -> None:
    tokens = ph.zeros((1, 4), dtype=ph.int32, device=DEVICES[0])
    whole = sum(p.ref.spec.nbytes for p in gpt().parameters())
    for device in training(sharded()).memory_report(tokens, tokens).devices[1:]:
        # Its owned parameters, sent or updated, and a few buckets in flight.
        assert device.arena.nbytes < whole / 4 + 4 * BUCKET


def lane(graph: Graph, device: Any) -> list[Node]:
    """Return a device's actions, in order."""
    return [n for n in graph.nodes if n.place.device is device and not graph.is_view(n) and n.op is not COLLECTIVE]


def crosses(node: Node) -> bool:
    return node.op in (START, JOIN, SEND, RECEIVE, PEER_COPY)


def collectives(plan: StepPlan, kind: Kind) -> list[Node]:
    return [n for n in plan.graph.nodes if n.op is COLLECTIVE and n.params[0].kind is kind]


def makers(graph: Graph, value: int) -> list[Node]:
    """Return the node that makes a value and, if it concatenates others, the nodes that make these."""
    node = graph.producer(graph.root(value))
    if node is None:
        return []
    return [node, *(n for v in node.reads if node.op.name == "concat" for n in makers(graph, v))]


@pytest.mark.parametrize("shard", ["state", "parameters"])
def test_gradients_are_reduced_as_soon_as_their_bucket_is_complete(plans: dict[str, StepPlan], shard: str) -> None:
    graph = plans[shard].graph
    reduced = collectives(plans[shard], Kind.REDUCE_SCATTER)
    assert len(reduced) > BLOCKS
    for device in DEVICES:
        nodes = lane(graph, ph.Device(device))
        position = {id(n): k for k, n in enumerate(nodes)}
        begins = []
        for node in reduced:
            members = zip(node.reads[:4], node.reads[4:], strict=True)
            source, start = next((v, n) for v, s in members if (n := graph.producer(s)) and id(n) in position)
            begins.append(position[id(start)])
            last = max(position[id(n)] for n in makers(graph, source))
            between = nodes[last + 1 : begins[-1]]
            assert all(crosses(n) or n.op.name == "concat" for n in between), [n.op.name for n in between]
        gradients = [k for k, n in enumerate(nodes) if n.op.name == "linear_weight_grad"]
        assert begins == sorted(begins)
        assert begins[0] < gradients[len(gradients) // 4], "the first bucket waits for those of other blocks"


@pytest.mark.parametrize("shard", ["state", "parameters"])
def test_gathered_parameters_are_awaited_where_they_are_used_first(plans: dict[str, StepPlan], shard: str) -> None:
    graph = plans[shard].graph
    gathered = {v for n in collectives(plans[shard], Kind.ALL_GATHER) for v in n.reads[-4:]}
    for device in DEVICES:
        nodes = lane(graph, ph.Device(device))
        joins = [(k, n.reads[1]) for k, n in enumerate(nodes) if n.op is JOIN and n.reads[1] in gathered]
        assert len(joins) == len(gathered) / 4
        for k, got in joins:
            following = next(n for n in nodes[k + 1 :] if not crosses(n))
            assert got in {graph.root(v) for v in following.reads}, following.op.name


def test_parameters_are_gathered_for_each_pass(plans: dict[str, StepPlan]) -> None:
    once, again = (collectives(plans[shard], Kind.ALL_GATHER) for shard in ("state", "parameters"))
    # The bucket that ends the forward pass begins the backward pass; tied weights are used once more in between.
    assert 2 * len(once) - 2 <= len(again) <= 2 * len(once) + 1
    reduced = [len(collectives(plan, Kind.REDUCE_SCATTER)) for plan in plans.values()]
    assert reduced[0] == reduced[1] == len(once)


def test_eager_calls_and_unknown_modes_are_refused() -> None:
    with pytest.raises(ValueError, match="shard is 'all'; expected 'state' or 'parameters'"):
        sharded(shard="all")
    expected = r"jit's first one.*; call it in a function under polyhal.jit\(warm_up=False\)"
    step = training(sharded(), captured=False)
    for call in (step, ph.jit(step)):
        with pytest.raises(ph.errors.CaptureError, match=expected):
            call(*batch(np.random.default_rng(0), DEVICES[0]))


def test_the_largest_batch_is_found_without_an_eager_call() -> None:
    devices, budget = DEVICES[:2], 768 << 10

    def rows(n: int) -> tuple[ph.Tensor, ph.Tensor]:
        x = ph.zeros((n, 4), dtype=ph.int32, device=DEVICES[0])
        return x, x

    found = {}
    for shard in ("state", "parameters"):
        step = training(sharded(devices, shard, blocks=1), captured=False)
        found[shard] = ph.fit(step, budget, batch=rows).batch_size
        captured = ph.jit(warm_up=False)(step)
        needed = [max(d.step for d in captured.memory_report(*rows(found[shard] + more)).devices) for more in (0, 1)]
        assert needed[0] <= budget < needed[1]
        assert np.isfinite(captured(*rows(found[shard])).item())
    assert found["parameters"] > found["state"]


def test_devices_that_use_temporary_results_in_different_orders() -> None:
    """It does not matter whether the step returns one."""
    group = Group(["numpy", "numpy:no_f64"])

    def use(*xs: ph.Tensor) -> tuple[ph.Tensor, ...]:
        first, second, third = (
            group.all_gather(list(pair), temporary=True) for pair in zip(xs[::2], xs[1::2], strict=True)
        )
        a = ((first[0] * 2).exp() @ second[0]).tanh() + third[0] @ first[0]
        b = ((third[1] * 2).exp() @ second[1]).tanh() + first[1] @ third[1] * 3
        return a + first[0].sum(), b, second[1]

    rng = np.random.default_rng(0)
    lengths = zip((3, 9, 5, 7, 6, 6), list(group.devices) * 3, strict=True)
    xs = [ph.tensor(rng.standard_normal(n).astype(np.float32), device=device) for n, device in lengths]
    captured = ph.jit(warm_up=False)(use)
    for _ in range(3):
        for got, expected in zip(captured(*xs), use(*xs), strict=True):
            np.testing.assert_array_equal(got.numpy(), expected.numpy())
