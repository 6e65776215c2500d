"""Planner: resolves an op and specs to a plan, by resolution steps that are tried once per call signature.

1. `lower`: a native kernel of the backend. 2. The strategies that the op declares: a required member of the contract after
copies that make inputs contiguous and of one dtype, fills and copies of regions, an uploaded constant, or the decomposition,
whose ops are resolved in turn. 3. The NumPy reference on the host. Every step that does not apply records its reason, which
`explain` prints.

Kernels and core members that failed `polyhal verify` on this machine (see `quarantine`), and kernels that do not build, are
skipped as well.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from polyhal.hal import dtypes
from polyhal.hal.compile.planning.core_member import core_member
from polyhal.hal.compile.planning.decompose import decomposed
from polyhal.hal.compile.planning.device_program import device_program
from polyhal.hal.compile.planning.host import declared_on_host, empty_inputs, host_constant, host_reference
from polyhal.hal.compile.planning.native import native_kernel
from polyhal.hal.compile.planning.quarantine import Quarantine, load
from polyhal.hal.compile.planning.regions import output_regions
from polyhal.hal.compile.planning.request import Request, Resolved
from polyhal.hal.compile.planning.resolution import Resolution, ResolutionStep
from polyhal.hal.compile.planning.source_kernel import source_kernel
from polyhal.hal.core import dispatch
from polyhal.hal.core.dispatch.host_work import warn_at_user
from polyhal.hal.core.execution.op_plan import OpPlan, Run
from polyhal.hal.core.memory.pool import bucket
from polyhal.hal.core.settings.state import settings
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.layout import Ref, ScalarSpec, Spec, contiguous, place
from polyhal.hal.ops.lowering import (
    CoreMember,
    Decompose,
    HostConstant,
    OnDevice,
    OnHost,
    Regions,
    SourceKernel,
    Strategy,
)
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.ops.schema import Specs, first_tensor
from polyhal.hal.ops.traits import Trait
from polyhal.hal.protocol import Launch, SimpleLaunch

if TYPE_CHECKING:
    from polyhal.hal.compile.ir.graph import Signature
    from polyhal.hal.device import Device
    from polyhal.hal.ops.schema import ParamValues

_SCALARS = {
    float: ScalarSpec(dtypes.DEFAULT_FLOAT),
    int: ScalarSpec(dtypes.DEFAULT_INT),
    bool: ScalarSpec(dtypes.bool_),
}


def _run_nothing(inputs: Sequence[Any], outs: Sequence[Ref]) -> None:
    """No-op: a view, or an op whose outputs have no elements, needs no work."""


class Planner:
    """Planner of one device."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._warned: set[str] = set()
        self._launch_types: set[type] = set()
        """Types that are known to implement `Launch`: the protocol's isinstance check takes longer than lowering many ops."""
        self._quarantine: Quarantine | None = None
        self.record: list[Resolution] | None = None
        """List to which all resolutions, failed ones included, are appended if it is set; for the conformance kit."""

    # --- settings ---------------------------------------------------------------------------------------------------

    @property
    def quarantine(self) -> Quarantine:
        """Kernels that are skipped on this device: the list that `polyhal verify` stored, unless set otherwise."""
        if self._quarantine is None:
            self._quarantine = load(self.device)
            if self._quarantine.ignored:
                warnings.warn(message(None, self._quarantine.ignored, device=self.device), stacklevel=2)
        return self._quarantine

    @quarantine.setter
    def quarantine(self, value: Quarantine) -> None:
        self._quarantine = value
        self.device.plans.clear()

    def forget(self) -> None:
        """Drop all plans, and read the quarantine again."""
        self._quarantine = None
        self.device.plans.clear()

    # --- plans ------------------------------------------------------------------------------------------------------

    def plan(self, op: OpDef, specs: tuple[Any, ...], params: ParamValues) -> OpPlan:
        """Plan a call. `specs` has the spec of each tensor, the type of each Python number, and None for absent inputs."""
        inputs, bound = _input_specs(specs), op.bind(params)
        inferred = dispatch.infer(op, inputs, bound, self.device.stand_ins)
        view = op.view_of(inputs[0], bound) if inputs else None
        if view is not None:
            resolution = Resolution(op.name, inputs, "view", ResolutionStep.VIEW)
            return OpPlan((place(first_tensor(inputs), view),), _run_nothing, resolution, view=view.offset)
        outputs = tuple(contiguous(d, s) for d, s in inferred)
        for spec in outputs:
            self.device.check_dtype(spec.dtype, op.name)
        run, launch, resolution = self.resolve(op, inputs, outputs, bound)
        tuple_result = op.schema.returns_tuple
        is_single = len(outputs) == 1 and not tuple_result and any(isinstance(s, Spec) for s in inputs)
        single = launch.__call__ if is_single and launch is not None and not launch.workspace else None
        return OpPlan(outputs, run, resolution, single=single, tuple_result=tuple_result)

    def plan_into(
        self,
        op: OpDef,
        specs: tuple[Any, ...],
        params: ParamValues,
        targets: tuple[Spec, ...],
        aliases: tuple[int, ...],
    ) -> OpPlan:
        """Plan a call that overwrites existing tensors, possibly including inputs (see `dispatch.apply_into`)."""
        inputs, bound = _input_specs(specs), op.bind(params)
        outputs = tuple(contiguous(d, s) for d, s in dispatch.infer(op, inputs, bound, self.device.stand_ins))
        for output, target in zip(outputs, targets, strict=True):
            if output.shape != target.shape or output.dtype is not target.dtype:
                raise ShapeError(message(op.name, f"the result is {output}", expected=f"the target's {target}"))
        separate = all(a == dispatch.SEPARATE for a in aliases)
        in_place = Trait.INPLACE in op.traits and dispatch.OVERLAPPING not in aliases
        if all(t.is_contiguous for t in targets) and (separate or in_place):
            # With the targets' alignment: unlike new outputs, they may start off an alignment boundary.
            direct = tuple(o._replace(aligned=t.aligned) for o, t in zip(outputs, targets, strict=True))
            run, _, resolution = self.resolve(op, inputs, direct, bound, () if separate else aliases)
            return OpPlan(direct, run, resolution)
        run, _, resolution = self.resolve(op, inputs, outputs, bound)
        return OpPlan(outputs, self._run_and_copy(run, outputs), resolution)

    def _run_and_copy(self, run: Run, outputs: tuple[Spec, ...]) -> Run:
        """Return a run into temporaries, which are then copied to the outputs."""
        sizes = [bucket(s.nbytes) for s in outputs]
        copy, take = self.device.backend.copy, self.device.pool.take

        def run_and_copy(args: Sequence[Any], outs: Sequence[Ref]) -> None:
            buffers = [take(n) for n in sizes]
            temporary = [Ref(b.handle, s, 0) for b, s in zip(buffers, outputs, strict=True)]
            run(args, temporary)
            for source, target in zip(temporary, outs, strict=True):
                if target.size:
                    copy(source, target)

        return run_and_copy

    # --- resolution -------------------------------------------------------------------------------------------------

    def resolve(
        self,
        op: OpDef,
        inputs: Specs,
        outputs: tuple[Spec, ...],
        params: dict[str, Any],
        aliases: tuple[int, ...] = (),
        on_device: bool = False,
    ) -> tuple[Run, Launch | None, Resolution]:
        """Resolve an op for these specs. Returns the run, its launch if it is a single launch, and the resolution record.

        `aliases` has the input that each output replaces in place, or -1. Raises FallbackRefusedError, and HostNeededError
        if `on_device` and the op has to run on the host.
        """
        resolution = Resolution(op.name, inputs, "", outputs=outputs)
        if self.record is not None:
            self.record.append(resolution)
        request = Request(op, inputs, outputs, params, aliases, resolution, on_device)
        resolved = self._without_elements(request) or self._try_steps(request)
        return *resolved, resolution

    def resolve_part(
        self, signature: Signature, params: dict[str, Any], on_device: bool = False
    ) -> tuple[Run, Resolution]:
        """Resolve a node of a decomposition, with a cache shared by all decompositions.

        Nodes that run on the host are not cached, so that the policy is checked each time. Raises FallbackRefusedError, and
        HostNeededError if `on_device`.
        """
        parts, key = self.device.plans.parts, (signature, settings.key)
        found = parts.get(key)  # looked up once: another thread may drop the entry
        if found is not None:
            if self.record is not None:
                self.record.extend(found[1])
            return found
        run, _, resolution = self.resolve(
            signature.op, signature.inputs, signature.outputs, params, on_device=on_device
        )
        if all(r.step is not ResolutionStep.HOST for r in resolution):
            parts[key] = run, resolution
        return run, resolution

    def resolution(self, op: OpDef, inputs: Specs, outputs: tuple[Spec, ...], params: dict[str, Any]) -> Resolution:
        """Return the resolution record of an op for these specs. Raises FallbackRefusedError."""
        return self.resolve(op, inputs, outputs, params)[2]

    def _without_elements(self, request: Request) -> Resolved | None:
        """Resolve an op whose outputs or inputs have no elements; None for other ops."""
        if not any(s.size for s in request.outputs):
            request.resolution.step = ResolutionStep.NOTHING
            request.resolution.how = "nothing to do: empty outputs"
            return _run_nothing, SimpleLaunch("nothing", lambda *args: None)
        tensors = [s for s in request.inputs if isinstance(s, Spec)]
        return empty_inputs(self, request) if tensors and not any(s.size for s in tensors) else None

    def _try_steps(self, request: Request) -> Resolved:
        # Backends have no native kernel for an op that comes with its own source.
        resolved = None if request.op.strategy(SourceKernel) else native_kernel(self, request)
        for strategy in request.op.lowering:
            resolved = resolved or self._lowered(request, strategy)
        if resolved is None and request.op.decompose is None:
            request.resolution.skipped.append("decomposition: the op has none")
        return resolved or host_reference(self, request)

    def _lowered(self, request: Request, strategy: Strategy) -> Resolved | None:
        """Resolve the op by a declared strategy; None if it does not apply."""
        match strategy:
            case CoreMember():
                return core_member(self, request, strategy)
            case Regions():
                return output_regions(self, request, strategy)
            case HostConstant():
                return host_constant(self, request, strategy)
            case Decompose():
                return decomposed(self, request)
            case OnDevice():
                return device_program(self, request, strategy)
            case OnHost():
                return declared_on_host(self, request, strategy)
            case SourceKernel():
                return source_kernel(self, request, strategy)
        return None  # a view strategy, which `plan` has tried

    # --- queries of the steps ---------------------------------------------------------------------------------------

    def is_quarantined(self, step: ResolutionStep, name: str, resolution: Resolution) -> bool:
        """Return whether a step is quarantined on this machine; `name` describes the step in the record."""
        if not self.quarantine.entries:
            return False
        entry = self.quarantine.find(step, resolution.op, resolution.dtype, resolution.layout)
        if entry is not None:
            resolution.skipped.append(f"{name}: {entry.reason}")
        return entry is not None

    def is_launch(self, x: object) -> bool:
        """Return whether an object implements `Launch`."""
        if type(x) not in self._launch_types:
            if not isinstance(x, Launch):
                return False
            self._launch_types.add(type(x))
        return True

    def warn_once(self, key: str, text: str) -> None:
        """Warn once per key."""
        if key not in self._warned:
            self._warned.add(key)
            warn_at_user(text)


def _input_specs(specs: tuple[Any, ...]) -> Specs:
    return tuple(_SCALARS[s] if isinstance(s, type) else s for s in specs)
