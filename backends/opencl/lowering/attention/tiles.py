"""Attention on any GPU: tiles in local memory, a register tile of scores per work-item."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import LaunchSequence, Tensor, Workspace
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering.attention.arguments import Attention, Definitions, delta, padded
from polyhal.backends.opencl.lowering.gather.scatter_add import after_zeros
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.protocol import Declined, Launch

_MAX_FEATURES = 256
_PAD = 4


@dataclass(frozen=True, slots=True)
class Tiles:
    """A group makes `rows` by `columns` scores, a work-item `height` by `width` of them."""

    rows: int
    columns: int
    height: int
    width: int

    @property
    def lanes(self) -> int:
        return self.columns // self.width

    @property
    def down(self) -> int:
        return self.rows // self.height

    @property
    def group(self) -> int:
        return self.down * self.lanes

    def registers(self, gathered: int) -> int:
        """Numbers that a work-item holds when it gathers rows of `gathered` features."""
        return self.height * (self.width + round_up(ceil_div(gathered, self.lanes), 4))


FORWARD = (
    Tiles(128, 64, 8, 8), Tiles(64, 64, 4, 8), Tiles(64, 32, 4, 4), Tiles(32, 32, 4, 4), Tiles(32, 16, 4, 2),
    Tiles(16, 16, 2, 2),
)  # fmt: skip
"""In the order of preference; the first that fits into the device's local memory and registers is taken."""
BACKWARD = (
    Tiles(64, 64, 8, 4), Tiles(64, 32, 4, 4), Tiles(32, 32, 4, 4), Tiles(32, 16, 2, 4), Tiles(16, 16, 2, 2),
)  # fmt: skip
_REGISTERS = 136


def _forward_elements(tiles: Tiles, features: int, values: int) -> int:
    pitch = features + _PAD
    return (tiles.rows + tiles.columns) * pitch + tiles.columns * (values + _PAD) + tiles.rows * (tiles.columns + _PAD)


def _backward_elements(tiles: Tiles, features: int, values: int) -> int:
    pitches = features + values + 2 * _PAD
    return (tiles.rows + tiles.columns) * pitches + tiles.rows * (tiles.columns + _PAD)


def _choose(
    runtime: Runtime,
    call: Attention,
    candidates: Sequence[Tiles],
    elements: Callable[[Tiles, int, int], int],
    gathered: int,
) -> Tiles | Declined:
    if call.longest > _MAX_FEATURES:
        return Declined(f"heads of {call.longest} features; the kernel takes {_MAX_FEATURES}")
    features, values = padded(call.shape.d), padded(call.shape.e)
    for tiles in candidates:
        memory = elements(tiles, features, values) * call.itemsize
        registers = tiles.registers(gathered) * call.itemsize // 4
        small = tiles is candidates[-1]
        if (
            memory <= runtime.features.static_local_memory
            and tiles.group <= runtime.features.max_group_size
            and (registers <= _REGISTERS or small)
        ):
            return tiles
    return Declined("the device has too little local memory")


def _definitions(runtime: Runtime, call: Attention, tiles: Tiles) -> Definitions:
    return call.definitions(
        FEATURES=padded(call.shape.d), VALUES=padded(call.shape.e), WHOLE=call.whole(), ROWS=tiles.rows,
        COLUMNS=tiles.columns, R=tiles.height, C=tiles.width, PLAIN=call.dtype.itemsize == call.itemsize,
        TENSOR_CORES=runtime.features.tensor_cores and call.real == "float",
    )  # fmt: skip


def forward(runtime: Runtime, call: Attention, candidates: Sequence[Tiles] = FORWARD) -> Launch | Declined:
    """The result and the logsumexp in one launch."""
    tiles = _choose(runtime, call, candidates, _forward_elements, padded(call.shape.e))
    if isinstance(tiles, Declined):
        return tiles
    parameters = [*call.operands(), Tensor(call.out), Tensor(call.out + 1), *call.numbers("out")]
    items = (ceil_div(call.shape.t, tiles.rows) * tiles.group, call.shape.count)
    definitions = _definitions(runtime, call, tiles)
    return runtime.launch("attention", "attention/tiles", definitions, parameters, items, (tiles.group, 1))


def _adding(runtime: Runtime, call: Attention, target: Workspace, candidates: Sequence[Tiles]) -> Launch | None:
    """All gradients in one launch that adds up those of queries in memory; None where no tile is suited to it."""
    features, values = padded(call.shape.d), padded(call.shape.e)
    suited = [tiles for tiles in candidates if tiles.columns % (4 * tiles.down) == 0]
    tiles = _choose(runtime, call, suited, _backward_elements, features + values) if suited else None
    if tiles is None or isinstance(tiles, Declined):
        return None
    results = (Tensor(call.out + i) for i in range(3))
    parameters: list[Parameter] = [*call.operands(), target, *results, *call.numbers("dq", "dk", "dv")]
    definitions = _definitions(runtime, call, tiles) | {"KEYS": True, "ALL": True, "PTX": runtime.features.tensor_cores}
    items = (ceil_div(call.shape.s, tiles.rows) * tiles.group, call.shape.count)
    launch = runtime.launch(
        "attention_grad.all", "attention/tiles_grad", definitions, parameters, items, (tiles.group, 1)
    )
    return after_zeros(runtime, "attention_grad", call.results[1], call.out, launch)


def backward(
    runtime: Runtime, call: Attention, candidates: Sequence[Tiles] = BACKWARD, adding: bool = False
) -> Launch | Declined:
    """The gradients of the queries in one launch, of the keys and values in another.

    With `adding` all in one, with two products less, whose sums for queries are added up in no fixed order: float32 only.
    """
    shape = call.shape
    features, values = padded(shape.d), padded(shape.e)
    target = Workspace(call.temporary)
    workspace = (2 * shape.count * shape.t * call.itemsize,)
    steps: list[Launch] = [delta(runtime, call, target, statistics=True)]
    together = _adding(runtime, call, target, candidates) if adding else None
    if together is not None:
        return LaunchSequence("attention_grad", [*steps, together], workspace)
    for keys, length, gathered, results in (
        (False, shape.t, features, ("dq",)), (True, shape.s, features + values, ("dk", "dv"))
    ):  # fmt: skip
        tiles = _choose(runtime, call, candidates, _backward_elements, gathered)
        if isinstance(tiles, Declined):
            return tiles
        parameters: list[Parameter] = [
            *call.operands(), target, *map(call.gradient, results), *call.numbers(*results)
        ]  # fmt: skip
        definitions = _definitions(runtime, call, tiles) | {"KEYS": keys}
        items = (ceil_div(length, tiles.rows) * tiles.group, shape.count)
        name = "attention_grad.keys" if keys else "attention_grad.queries"
        steps.append(runtime.launch(name, "attention/tiles_grad", definitions, parameters, items, (tiles.group, 1)))
    return LaunchSequence("attention_grad", steps, workspace)
