"""Answering "how does this op run here, and why not faster?" """

from __future__ import annotations

from typing import Any

from polyhal.hal.device import Device
from polyhal.hal.dtypes import as_dtype, float32
from polyhal.hal.layout import contiguous
from polyhal.hal.ops import OPS


def explain(
    op: str, device: Device | str | None = None, *shapes: tuple[int, ...], dtype: object = float32, **params: Any
) -> str:
    """How `op` is resolved on `device`, step by step, with the reason for every step that was passed over.

    `shapes` are those of the inputs; without them the op's own samples provide shapes and parameters. Raises KeyError for an
    unknown op, naming close matches.
    """
    import difflib

    import numpy as np

    if op not in OPS:
        close = difflib.get_close_matches(op, OPS.names(), 3)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise KeyError(f"no op is called {op!r}{hint}")
    definition, target, kind = OPS[op], Device(device), as_dtype(dtype)
    if shapes:
        specs: tuple[Any, ...] = tuple(contiguous(kind, tuple(s)) for s in shapes)
        specs += (type(None),) * (len(definition.schema.inputs) - len(specs))
        specs = tuple(None if s is type(None) else s for s in specs)
    else:
        samples = definition.tests.samples
        if samples is None:
            raise ValueError(f"{op} has no sample to plan for; give shapes")
        sample = max(
            samples(np.random.default_rng(0)),
            key=lambda s: sum(np.size(x) for x in s.inputs if x is not None),
        )
        specs = tuple(_spec(x, kind) for x in sample.inputs)
        params = {**sample.params, **params}
    bound = {**definition.schema.params, **params}
    plan = target.planner.plan(definition, specs, tuple(bound[name] for name in definition.schema.params))
    return f"{target.name} ({target.info.name})\n{plan.resolution}"


def _spec(x: Any, kind: Any) -> Any:
    import numpy as np

    if x is None or isinstance(x, (bool, int, float)):
        return None if x is None else type(x)
    array = np.asarray(x)
    dtype = as_dtype(array.dtype) if array.dtype.kind in "biu" else kind
    return contiguous(dtype, array.shape)
