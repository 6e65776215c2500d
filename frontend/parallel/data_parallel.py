"""Data parallel training: every device runs the model on its rows of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from polyhal.func.stateless import replaced
from polyhal.hal.collectives.process_group import ProcessGroup
from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.errors import CaptureError, message
from polyhal.nn.module import Module
from polyhal.nn.parameter import Parameter, relocate
from polyhal.nn.state import LoadResult
from polyhal.nn.targets import device_and_dtype
from polyhal.parallel.balance import Balancer
from polyhal.parallel.group import Group
from polyhal.parallel.lockstep import ReplicaCall, run_in_lockstep
from polyhal.parallel.micro_batches import join_rows
from polyhal.parallel.processes import start_alike, sum_of_parts
from polyhal.parallel.replication import Replication
from polyhal.parallel.shards import Sharding, Shards, divide
from polyhal.steps.tree import map_tree
from polyhal.tape.modes import no_grad
from polyhal.tensor import Tensor


class DataParallel(Module):
    """Runs a module on several devices, each on its rows of the batch, and joins the results on the first device.

    Tensor arguments (N, ...) are divided along their first axis in proportion to `shares`, equal by default; all other
    arguments are passed to every device. Results (n_i, ...) are concatenated, and scalars averaged, weighted by rows: for a
    module that returns the mean loss of its rows, the result and its gradient are exactly those of the whole batch.

    Each parameter is owned by one device. `parameters()`, state dicts and optimizers contain the owners' tensors under the
    module's own names. A forward pass gathers them in buckets of about `bucket_bytes` bytes (default: chosen for the links),
    and the backward pass sums their gradients on the owners. In a captured step this communication overlaps with computation.
    Buffers, such as running statistics, are updated by the first device that has rows; `nn.SyncBatchNorm` uses the statistics
    of the whole batch. Random numbers that the module draws differ between devices.

    With `processes`, such as `polyhal.distributed.process_group()`, every process calls the model with rows of its own. All
    processes start with the parameters of rank 0; scalars are averaged and gradients summed over the rows of all processes,
    so that all take equal optimizer steps. Other results contain only the process's own rows, and each process has its own
    buffers; `nn.SyncBatchNorm` uses the statistics of all rows of all processes.

    With `shard="state"` every device holds all parameters from the forward pass to the backward pass, but only the gradients
    and optimizer state of the parameters that it owns (ZeRO-2). With `shard="parameters"` (FSDP, ZeRO-3) a captured step
    reshards after use: it frees gathered parameters and regathers them, a few buckets at a time, with bit-identical results;
    eager calls raise.

    >>> layer = polyhal.nn.Linear(3, 2, device="numpy")
    >>> model = polyhal.parallel.DataParallel(layer, ["numpy", "numpy:no_f64"])
    >>> model(polyhal.ones((5, 3), device="numpy")).shape
    (5, 2)
    """

    def __init__(
        self,
        module: Module,
        devices: Sequence[Device | str] | Group,
        *,
        shares: Sequence[float] | None = None,
        bucket_bytes: int | None = None,
        processes: ProcessGroup | None = None,
        balance: bool = False,
        shard: Literal["state", "parameters"] = "state",
    ) -> None:
        """`shares` are positive numbers, one per device. Raises ValueError for other numbers, and for repeated devices.

        With `balance`, captured steps are timed now and then, and shares are adapted to the speed, memory and links of the
        devices. The last bits of results then depend on timings.
        """
        super().__init__()
        if shard not in ("state", "parameters"):
            raise ValueError(message("DataParallel", f"shard is {shard!r}", expected="'state' or 'parameters'"))
        self._shard = shard
        self.group = devices if isinstance(devices, Group) else Group(devices)
        self.module = module
        self._processes = processes
        self._all_devices: Group | None = None
        self._shares = self._checked(shares)
        named = dict(module.named_parameters())
        temporary = shard == "parameters"
        self._replication = Replication(named, self.group, self._shares, bucket_bytes, processes, temporary=temporary)
        for buffer in module.buffers():
            relocate(buffer, self.devices[0], None)
        if processes is not None:
            start_alike(module.buffers(), processes)
        self.balancer = Balancer(self.devices, self._divide) if balance and len(self.devices) > 1 else None
        """Balancer that adapts the shares."""

    @property
    def devices(self) -> tuple[Device, ...]:
        """Devices of the replicas, in order."""
        return self.group.devices

    @property
    def shares(self) -> tuple[float, ...]:
        """Fraction of a batch that each device processes; the sum is 1."""
        return self._shares

    @shares.setter
    def shares(self, shares: Sequence[float]) -> None:
        self._shares = self._checked(shares)
        dispatch.structure.changed()  # captured steps may divide their arguments differently

    def rebalance(self) -> bool:
        """Adopt the fastest division that measurements predict. Returns whether it differs from the current one.

        Raises ValueError unless the model was made with `balance=True`.
        """
        if self.balancer is None:
            raise ValueError(message("rebalance", "the model measures nothing", fix="DataParallel(..., balance=True)"))
        return self.balancer.rebalance(gain=1.0)

    def _divide(self, rows: tuple[int, ...]) -> None:
        """Divide later batches in proportion to these rows. A device may have none."""
        self._shares = tuple(n / sum(rows) for n in rows)
        dispatch.structure.changed()

    def owner(self, name: str) -> Device:
        """Return the device that owns the parameter called `name`. Raises KeyError."""
        return self.devices[self._replication.owners[name]]

    def counts(self, rows: int) -> tuple[int, ...]:
        """Return the number of rows per device for a batch of `rows` rows."""
        return divide(rows, self._shares)

    def shard(self, *arrays: Any) -> tuple[Shards, ...]:
        """Divide arrays (N, ...) among the devices, as calls do; each part is copied directly to its device."""
        sharding = Sharding("DataParallel", self.devices, self._shares, [Tensor(a, device="numpy") for a in arrays])
        starts = [sum(sharding.counts[:i]) for i in range(len(self.devices))]
        return tuple(
            self.as_shards(
                [
                    Tensor(array[start : start + n], device=device)
                    for device, start, n in zip(self.devices, starts, sharding.counts, strict=True)
                ]
            )
            for array in arrays
        )

    @staticmethod
    def as_shards(parts: Sequence[Tensor]) -> Shards:
        """Wrap the parts (n_i, ...) of a batch, each on its device, as one argument of a call."""
        return Shards(tuple(parts))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.map(_forward, *args, **kwargs)

    def map(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call `function(module, *args, **kwargs)` on every device with its rows of the arguments, and join the results.

        Inside, the module has the device's copies of its parameters. `function` may call any of the module's methods:
        `model.map(lambda m, x, y: cross_entropy(m(x), y), x, y)`. Raises ShapeError.
        """
        return self._call(self._map, (function, args, kwargs), {})

    def _call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function as if it were `forward`, so that captured steps record the names of parameters and modules."""
        return dispatch.thread.executor.call_module(self, function, args, kwargs)

    def _map(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        sharding = Sharding("DataParallel", self.devices, self._shares, (args, kwargs))
        if self.balancer is not None:
            self.balancer.watch(sharding.counts)
        if self._shard == "parameters" and dispatch.thread.executor.replays_graphs:
            problem = 'an eager call, such as jit\'s first one, of a model with shard="parameters"'
            expected = "a captured step, which can schedule the regathering of parameters"
            fix = 'call it in a function under polyhal.jit(warm_up=False), or make it with shard="state"'
            raise CaptureError(message("DataParallel", problem, expected=expected, fix=fix))
        replicas = self._replication.gathered()
        members = [i for i, n in enumerate(sharding.counts) if n] or [0]
        buffers = [self._buffers_on(self.devices[i]) for i in members]
        calls = []
        for i, own_buffers in zip(members, buffers, strict=True):
            own_args, own_kwargs = sharding.part((args, kwargs), i)
            tensors = partial(replaced, self.module, {**replicas[i], **own_buffers})
            calls.append(ReplicaCall(i, partial(self._call, function, (self.module, *own_args), own_kwargs), tensors))
        if any(getattr(m, "exchanges_with_replicas", False) for m in self.module.modules()):
            results = run_in_lockstep(self._of_all_processes(), calls)
        else:
            results = [_run(call) for call in calls]
        if members[0]:
            self._keep(buffers[0])
        by_rows = list(zip([sharding.counts[i] for i in members], results, strict=True))
        if not self._replication.across:
            return self._joined(by_rows, max(sharding.rows, 1))
        across = self._replication.across[0]
        joined = self._joined(by_rows, max(sum(across.communicator.all_lengths([sharding.rows])), 1))
        return map_tree(joined, lambda x: sum_of_parts(x, across) if isinstance(x, Tensor) and not x.ndim else x)

    def _of_all_processes(self) -> Group:
        """Return the group of the devices of all processes."""
        if self._all_devices is None:
            self._all_devices = self.group if self._processes is None else Group(self.devices, self._processes)
        return self._all_devices

    def _buffers_on(self, device: Device) -> dict[str, Tensor]:
        """Return the buffers of a replica; on the first device these are the module's own."""
        with no_grad():
            return {n: b if device is b.device else b.to(device) for n, b in self.module.named_buffers()}

    def _keep(self, buffers: Mapping[str, Tensor]) -> None:
        """Copy the buffers of a replica, the first one that ran, to the module."""
        with no_grad():
            for name, buffer in self.module.named_buffers():
                buffer.copy_(buffers[name])

    def _joined(self, results: Sequence[tuple[int, Any]], rows: int) -> Any:
        """Join the devices' results on the first device."""
        home = self.devices[0]
        parts = [map_tree(value, lambda x: x.to(home) if isinstance(x, Tensor) else x) for _, value in results]
        return join_rows(parts, partial(_weighted_sum, weights=[n / rows for n, _ in results]))

    # --- the module's own names -------------------------------------------------------------------------------------

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        return self.module.named_parameters(prefix, recurse, remove_duplicate)

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        return self.module.named_buffers(prefix, recurse, remove_duplicate)

    def state_dict(self, prefix: str = "", keep_vars: bool = False) -> dict[str, Any]:
        return self.module.state_dict(prefix, keep_vars)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> LoadResult:
        if assign:
            problem = "assign=True would move parameters away from the devices that own them"
            raise ValueError(message("DataParallel", problem, fix="load without assign"))
        return self.module.load_state_dict(state_dict, strict)

    def to(self, *targets: Any, device: object = None, dtype: object = None, **options: Any) -> DataParallel:
        place, _ = device_and_dtype((*targets, *(t for t in (device, dtype) if t is not None)))
        if place is not None:
            problem = f"the model is on {', '.join(d.name for d in self.devices)}"
            fix = "make another DataParallel, or move its .module"
            raise ValueError(message("DataParallel.to", problem, expected="only a dtype", fix=fix))
        self.module.to(*targets, dtype=dtype, **options)
        return self

    def _checked(self, shares: Sequence[float] | None) -> tuple[float, ...]:
        given = [1.0] * len(self.devices) if shares is None else [float(s) for s in shares]
        if len(given) != len(self.devices) or not all(0 < s < float("inf") for s in given):
            expected = f"{len(self.devices)} positive numbers, one per device"
            raise ValueError(message("DataParallel", f"shares are {given}", expected=expected))
        return tuple(s / sum(given) for s in given)

    def extra_repr(self) -> str:
        return ", ".join(f"{d.name}: {s:.0%}" for d, s in zip(self.devices, self._shares, strict=True))


def _run(replica: ReplicaCall) -> Any:
    """Run a replica without lockstep."""
    with replica.tensors():
        return replica.call()


def _forward(module: Module, *args: Any, **kwargs: Any) -> Any:
    return module(*args, **kwargs)


def _weighted_sum(xs: Sequence[Any], weights: Sequence[float]) -> Any:
    """Return the weighted sum of scalars; for other values the first."""
    if not isinstance(xs[0], Tensor):
        return xs[0]
    total, *others = [x if w == 1 else x * w for x, w in zip(xs, weights, strict=True)]
    for x in others:
        total = total + x
    return total
