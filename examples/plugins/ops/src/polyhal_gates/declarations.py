"""The declarations of the ops: formulas, decompositions, kernels, gradients and samples."""

from __future__ import annotations

from typing import Any

import numpy as np

import polyhal
from polyhal.hal.dtypes import FLOATS, float32, float64
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops.batching import leading
from polyhal.hal.ops.declare import Decompose, ErrorSample, Output, Sample, Specs, Tolerance, declare, first_tensor
from polyhal.hal.ops.pointwise.elementwise import elementwise
from polyhal.hal.ops.user_kernels import source_kernel

# --- an op with separate kernels ----------------------------------------------------------------------------------


def swiglu_reference(x: np.ndarray) -> np.ndarray:
    """Compute `silu(a) * b` for the halves `a` and `b` of `x` along its last axis (Shazeer 2020, arXiv:2002.05202)."""
    a, b = np.split(x, 2, axis=-1)
    return a / (1 + np.exp(-a)) * b


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    """Return the output's spec: half of the last axis."""
    x = first_tensor(specs)
    if not x.ndim or x.shape[-1] % 2:
        raise ShapeError(message("swiglu", f"x has the shape {x.shape}", expected="a last axis of even length"))
    return [(x.dtype, (*x.shape[:-1], x.shape[-1] // 2))]


def _decompose(x: Any) -> Any:
    half = x.shape[-1] // 2
    return polyhal.silu(x[..., :half]) * x[..., half:]


def _samples(rng: np.random.Generator) -> list[Sample]:
    return [Sample((rng.uniform(-4, 4, shape),)) for shape in [(2,), (0, 4), (3, 5, 6), (4, 66)]]


swiglu = declare(
    swiglu_reference,
    name="swiglu",
    family="activation",
    infer=_infer,
    lowering=(
        source_kernel(
            "swiglu",
            swiglu_reference,
            opencl="""
__kernel void swiglu(__global const T *x, __global T *out, uint out_size, uint out_last) {
    size_t i = get_global_id(0);
    if (i >= out_size) return;
    size_t at = i + i / out_last * out_last;  // a row of x is twice as long
    T gate = x[at];
    out[i] = gate / (1 + exp(-gate)) * x[at + out_last];
}""",
            wgsl="""
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x;
    if (i >= parameters.out_size) { return; }
    let at = i + i / parameters.out_last * parameters.out_last;
    let gate = x[at];
    out[i] = gate / (1.0 + exp(-gate)) * x[at + parameters.out_last];
}""",
            dtypes=(float32, float64),
        ),
        Decompose(_decompose),
    ),
    batching=leading,
    samples=_samples,
    errors=(ErrorSample((np.zeros((2, 3)),), {}, ShapeError, "expected a last axis of even length"),),
    dtypes=FLOATS,
    # WGSL allows exp(x) 3 + 2|x| units, 11 for the samples; a sum, a quotient of 2.5 units and a product follow.
    tolerance=Tolerance(16.0),
)

# --- an elementwise op, whose kernels are generated -----------------------------------------------------------------

softcap = elementwise(
    "softcap",
    lambda x, *, cap=30.0: cap * np.tanh(x / cap),
    "`cap * tanh(x / cap)`: `x` limited to (-cap, cap), as Gemma 2 limits its logits.",
    promotion="float",
    decompose=lambda x, *, cap: polyhal.tanh(x / cap) * cap,
    expression="cap * tanh(x / cap)",
    gradient=lambda g, x, *, cap: g * (1.0 - polyhal.square(polyhal.tanh(x / cap))),
    # tanh within 5 units, as OpenCL allows; a quotient of 2.5 units before it, and a product.
    tolerance=Tolerance(8.0),
)
