"""From an op and specs to something that runs: the four resolution steps, taken once and then cached.

1. `lower`: a native kernel of the backend. 2. A required member of the contract, after copies that make inputs
contiguous and of one dtype. 3. The op's decomposition, each of its ops resolved in turn. 4. The NumPy reference on the
host. Every step that was passed over leaves its reason, which `explain` prints.

Steps 1 and 2 are passed over too where `polyhal verify` found that they fail on this machine (see `quarantine`), and
step 1 where its kernel does not build.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from polyhal.hal import dispatch, dtypes
from polyhal.hal.errors import FallbackRefusedError, KernelBuildError, ShapeError, UnsupportedOpError, message
from polyhal.hal.ir.graph import Graph
from polyhal.hal.ir.trace import trace
from polyhal.hal.kernels.quarantine import Quarantine, load
from polyhal.hal.layout import Ref, ScalarSpec, Spec, View, contiguous, place
from polyhal.hal.memory.pool import bucket
from polyhal.hal.ops.lowering import CoreMember, Decompose, HostConstant, Regions, Strategy
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.ops.schema import Specs, first_tensor
from polyhal.hal.ops.traits import Trait
from polyhal.hal.planning.core_member import Run, core_run
from polyhal.hal.planning.decompose import decomposition
from polyhal.hal.planning.host import reference, upload_run
from polyhal.hal.planning.regions import region_run
from polyhal.hal.planning.resolution import Resolution, ResolutionStep, layout_of, subject
from polyhal.hal.protocol import Declined, Feature, Launch, SimpleLaunch
from polyhal.hal.settings import env
from polyhal.hal.settings.state import settings

if TYPE_CHECKING:
    from polyhal.hal.device import Device

_WEAK = {float: ScalarSpec(dtypes.DEFAULT_FLOAT), int: ScalarSpec(dtypes.DEFAULT_INT), bool: ScalarSpec(dtypes.bool_)}


class Plan:
    """A resolved op for fixed specs: what the hot path looks up."""

    __slots__ = ("bucket", "buckets", "outputs", "resolution", "run", "single", "spec", "tuple_result", "view")

    def __init__(
        self,
        outputs: tuple[Spec, ...],
        run: Run,
        resolution: Resolution,
        *,
        single: Callable[..., None] | None = None,
        view: int | None = None,
        tuple_result: bool = False,
    ) -> None:
        self.outputs = outputs
        self.run = run
        self.resolution = resolution
        self.single = single
        self.view = view
        self.tuple_result = tuple_result
        self.buckets = tuple(bucket(s.nbytes) for s in outputs)
        self.bucket = self.buckets[0] if outputs else 0
        self.spec = outputs[0] if outputs else None


class Plans(dict[Any, Plan]):
    """The plans of one device by call. When there are very many, those that were made first go: shapes may change for ever."""

    most = 8192

    def __setitem__(self, key: Any, plan: Plan) -> None:
        if len(self) >= self.most:
            for old in list(self)[: self.most // 4]:
                self.pop(old, None)
        super().__setitem__(key, plan)


_Found = tuple[Run, Launch | None]
"""How to run an op; and, where a launch is all there is to it, that launch."""


class _Request(NamedTuple):
    """An op to be resolved, and the record of how that goes."""

    op: OpDef
    inputs: Specs
    outputs: tuple[Spec, ...]
    params: dict[str, Any]
    aliases: tuple[int, ...]
    note: Resolution


def _nothing(inputs: Sequence[Any], outs: Sequence[Ref]) -> None:
    """The run of a plan whose outputs have no elements."""


class Planner:
    """Makes the plans of one device."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._backend = device.backend
        self._lowers = bool(device.features & Feature.LOWERING)
        self._warned: set[str] = set()
        self._quarantine: Quarantine | None = None
        self.record: list[Resolution] | None = None
        """Where the conformance kit wants them: all resolutions from now on, those that fail included."""

    @property
    def quarantine(self) -> Quarantine:
        """What is passed over on this device: what `polyhal verify` left on the disk, unless it was set otherwise."""
        if self._quarantine is None:
            self._quarantine = load(self._device)
            if self._quarantine.ignored:
                warnings.warn(message(None, self._quarantine.ignored, device=self._device), stacklevel=2)
        return self._quarantine

    @quarantine.setter
    def quarantine(self, value: Quarantine) -> None:
        self._quarantine = value
        self._device.plans.clear()

    def forget(self) -> None:
        """Unmake all plans, and read the quarantine again."""
        self._quarantine = None
        self._device.plans.clear()

    def plan(self, op: OpDef, specs: tuple[Any, ...], params: tuple[Any, ...]) -> Plan:
        """Plan a call. `specs` holds specs, the types of Python numbers, and None for absent inputs."""
        inputs: Specs = tuple(_WEAK[s] if isinstance(s, type) else s for s in specs)
        bound = op.bind(params)
        inferred = dispatch.infer(op, inputs, bound)
        view = op.view_of(inputs[0], bound) if inputs else None
        if view is not None:
            note = Resolution(op.name, _listed(inputs), "view", ResolutionStep.VIEW)
            return Plan((place(first_tensor(inputs), view),), _nothing, note, view=view.offset)
        outputs = tuple(contiguous(d, s) for d, s in inferred)
        for spec in outputs:
            self._device.check_dtype(spec.dtype, op.name)
        run, launch, resolution = self.resolve(op, inputs, outputs, bound)
        single: Callable[..., None] | None = launch if launch is not None and not launch.workspace else None
        tuple_result = op.schema.returns_tuple
        if len(outputs) != 1 or tuple_result or not any(isinstance(s, Spec) for s in inputs):
            single = None
        return Plan(outputs, run, resolution, single=single, tuple_result=tuple_result)

    def plan_into(
        self,
        op: OpDef,
        specs: tuple[Any, ...],
        params: tuple[Any, ...],
        targets: tuple[Spec, ...],
        aliases: tuple[int, ...],
    ) -> Plan:
        """Plan a call that writes over existing tensors, of which some are inputs (see `dispatch.apply_into`)."""
        inputs: Specs = tuple(_WEAK[s] if isinstance(s, type) else s for s in specs)
        bound = op.bind(params)
        inferred = dispatch.infer(op, inputs, bound)
        outputs = tuple(contiguous(d, s) for d, s in inferred)
        for inferred_spec, target in zip(outputs, targets, strict=True):
            if inferred_spec.shape != target.shape or inferred_spec.dtype is not target.dtype:
                raise ShapeError(message(op.name, f"the result is {inferred_spec}", expected=f"the target's {target}"))
        if all(t.is_contiguous for t in targets):
            # The targets' own specs, because they may lie off the alignment that fresh outputs have.
            direct = tuple(o._replace(aligned=t.aligned) for o, t in zip(outputs, targets, strict=True))
            separate = all(a == dispatch.SEPARATE for a in aliases)
            exact = Trait.INPLACE in op.traits and dispatch.OVERLAPPING not in aliases
            if separate or exact:
                run, _, resolution = self.resolve(op, inputs, direct, bound, () if separate else aliases)
                return Plan(direct, run, resolution)
        inner, _, resolution = self.resolve(op, inputs, outputs, bound)
        sizes = [bucket(s.nbytes) for s in outputs]
        copy, take = self._backend.copy, self._device.pool.take

        def into(args: Sequence[Any], outs: Sequence[Ref]) -> None:
            buffers = [take(n) for n in sizes]
            temporary = [Ref(b.handle, s, 0) for b, s in zip(buffers, outputs, strict=True)]
            inner(args, temporary)
            for source, target in zip(temporary, outs, strict=True):
                if target.size:
                    copy(source, target)

        return Plan(outputs, into, resolution)

    def resolve(
        self,
        op: OpDef,
        inputs: Specs,
        outputs: tuple[Spec, ...],
        params: dict[str, Any],
        aliases: tuple[int, ...] = (),
    ) -> tuple[Run, Launch | None, Resolution]:
        """How to run an op for these specs. `aliases` says which input each output replaces in place, -1 for none."""
        resolution = Resolution(
            op.name, _listed(inputs), "", dtype=subject(inputs, outputs), layout=layout_of(inputs, outputs)
        )
        if self.record is not None:
            self.record.append(resolution)
        if not any(s.size for s in outputs):
            resolution.step, resolution.how = ResolutionStep.NOTHING, "nothing to do: empty outputs"
            return _nothing, SimpleLaunch("nothing", lambda *args: None), resolution
        tensors = [s for s in inputs if isinstance(s, Spec)]
        if tensors and not any(s.size for s in tensors):
            resolution.step, resolution.how = ResolutionStep.NOTHING, "constant: all inputs are empty"
            empty = [np.empty(s.shape, s.dtype.numpy) if isinstance(s, Spec) else None for s in inputs]
            return upload_run(self._backend, lambda args: reference(op, empty, params)), None, resolution
        request = _Request(op, inputs, outputs, params, aliases, resolution)
        found = self._native(request)
        for strategy in op.lowering:
            found = found or self._lowered(strategy, request)
        if op.decompose is None and found is None:
            resolution.skipped.append("decomposition: the op has none")
        found = found or self._host(request)
        if found is not None:
            return *found, resolution
        raise UnsupportedOpError(
            message(op.name, f"no way to run {_listed(inputs)}: " + "; ".join(resolution.skipped), device=self._device)
        )

    def _native(self, request: _Request) -> _Found | None:
        op, inputs, outputs, params, _, note = request
        if not self._lowers:
            note.skipped.append("native kernel: the backend lowers no ops")
            return None
        if any(isinstance(s, Spec) and not s.size for s in inputs):
            note.skipped.append("native kernel: an input is empty")
            return None
        if self._quarantined(ResolutionStep.NATIVE, "native kernel", note):
            return None
        try:
            wanted = self._backend.capabilities.settings
            if op.settings and wanted:
                params = {**params, **settings.among(op.settings, wanted)}
            launch = self._backend.lower(op.name, inputs, outputs, params)  # type: ignore[attr-defined]
        except KernelBuildError as error:
            if env.strict():
                raise
            self._did_not_build(error, note)
            return None
        if isinstance(launch, Declined):
            note.skipped.append(f"native kernel: {launch.reason}")
            return None
        note.step, note.how, note.recordable = ResolutionStep.NATIVE, f"native kernel {launch.name}", True
        if not launch.workspace:
            return lambda args, outs: launch(*args, *outs), launch
        sizes = [bucket(n) for n in launch.workspace]
        take = self._device.pool.take

        def run(args: Sequence[Any], outs: Sequence[Ref]) -> None:
            buffers = [take(n) for n in sizes]
            launch(*args, *outs, *[b.handle for b in buffers])

        return run, launch

    def _quarantined(self, step: ResolutionStep, what: str, note: Resolution) -> bool:
        """Whether a step is not to be taken on this machine; `what` names it in the note."""
        entry = self.quarantine.find(step, note.op, note.dtype, note.layout)
        if entry is not None:
            note.skipped.append(f"{what}: {entry.reason}")
        return entry is not None

    def _did_not_build(self, error: KernelBuildError, note: Resolution) -> None:
        """Note what the driver says, and warn at the first time that a kernel of the op does not build."""
        note.skipped.append(f"native kernel: it does not build: {error.gist}")
        if f"build {note.op}" not in self._warned:
            self._warned.add(f"build {note.op}")
            warnings.warn(
                message(
                    note.op,
                    f"the native kernel for ({note.specs}) does not build, and a slower way is taken: {error.gist}",
                    fix="POLYHAL_STRICT=1 raises the error in full",
                    device=self._device,
                ),
                stacklevel=6,
            )

    def _lowered(self, strategy: Strategy, request: _Request) -> _Found | None:
        """Run an op by one of the strategies that it declares, or note why that does not apply."""
        match strategy:
            case CoreMember():
                return self._core_member(strategy, request)
            case Regions():
                return self._regions(strategy, request)
            case HostConstant():
                request.note.step, request.note.how = ResolutionStep.CORE, "constant uploaded from the host"
                return upload_run(self._backend, lambda args: strategy.make(request.params)), None
            case Decompose():
                return self._decompose(request)
        return None  # a view, which was tried before

    def _core_member(self, strategy: CoreMember, request: _Request) -> _Found | None:
        _, inputs, outputs, params, _, note = request
        call = strategy.rule(self._backend, inputs, outputs, params)
        if isinstance(call, Declined):
            note.skipped.append(f"core method: {call.reason}")
            return None
        if any(isinstance(s, Spec) and not s.size for s in inputs):
            note.skipped.append("core method: an input is empty")
            return None
        if self._quarantined(ResolutionStep.CORE, f"core method {call.name}", note):
            return None
        found = core_run(self._device, call, inputs, outputs[0])
        if found is None:
            note.skipped.append(f"core method {call.name}: no dtype of the device computes {call.result.name}")
            return None
        note.step, note.how = ResolutionStep.CORE, f"core method {call.name}"
        run, note.temporary = found
        return run, None

    def _regions(self, strategy: Regions, request: _Request) -> _Found:
        _, inputs, outputs, params, aliases, note = request
        whole = View(outputs[0].shape, outputs[0].strides)
        regions = [
            r
            for r in strategy.rule(inputs, outputs, params)
            # An output that replaces its source in place holds those elements already.
            if 0 not in r.target.shape
            and not (aliases and r.source == aliases[0] and (r.target, r.view) == (whole, None))
        ]
        note.recordable = True
        note.step, note.how = ResolutionStep.CORE, f"{len(regions)} core fills and copies"
        return region_run(self._backend, regions, outputs[0]), None

    def _decompose(self, request: _Request) -> _Found | None:
        op, inputs, outputs, params, aliases, note = request
        graph = trace(decomposition(op, outputs), inputs, params)
        for value, output in zip(graph.outputs, outputs, strict=True):
            made = graph.specs[value]
            if isinstance(made, Spec) and not output.aligned:
                graph.specs[value] = made._replace(aligned=False)
        try:
            run = self._composite(graph, aliases, note)
        except UnsupportedOpError as error:
            note.parts.clear()
            note.skipped.append(f"decomposition: {error}")
            return None
        note.step, note.how = ResolutionStep.COMPOSED, f"decomposed into {len(graph.nodes)} ops"
        return run, None

    def _composite(self, graph: Graph, aliases: tuple[int, ...], note: Resolution) -> Run:
        """A run of every node in order, with temporaries from the pool that are let go after their last use."""
        from polyhal.hal.planning.interpreter import Composite

        steps: list[Any] = []
        for node in graph.nodes:
            specs: Specs = tuple(graph.spec_of(x) for x in node.inputs)
            params = node.op.bind(node.params)
            outputs = tuple(graph.specs[i] for i in node.outputs)
            view = node.op.view_of(specs[0], params) if specs else None
            if view is not None:
                steps.append(view.offset)
                continue
            assert all(isinstance(s, Spec) for s in outputs)
            run, _, part = self.resolve(node.op, specs, outputs, params)  # type: ignore[arg-type]
            note.parts.append(part)
            steps.append(run)
        return Composite(graph, steps, aliases, self._device).run

    def _host(self, request: _Request) -> _Found | None:
        op, inputs, outputs, params, _, note = request
        moved = sum(s.nbytes for s in (*inputs, *outputs) if isinstance(s, Spec))
        policy = env.fallback_policy()
        if policy == "error":
            raise FallbackRefusedError(
                message(
                    op.name,
                    f"{_listed(inputs)} would run on the host and move {moved} bytes: " + "; ".join(note.skipped),
                    fix="set POLYHAL_FALLBACK=warn or allow to permit that",
                    device=self._device,
                )
            )
        if policy == "warn" and op.name not in self._warned:
            self._warned.add(op.name)
            warnings.warn(
                message(
                    op.name,
                    f"runs on the host and moves {moved} bytes a call: " + "; ".join(note.skipped),
                    device=self._device,
                ),
                stacklevel=6,
            )
        note.step, note.how = ResolutionStep.HOST, f"host reference, moving {moved} bytes"
        download = self._device.download
        return upload_run(
            self._backend,
            lambda args: reference(op, [download(x) if isinstance(x, Ref) else x for x in args], params),
        ), None


def _listed(specs: Specs) -> str:
    return ", ".join("none" if s is None else str(s) for s in specs)


__all__ = ["Plan", "Planner", "Resolution"]
