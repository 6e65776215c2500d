"""Differences from PyTorch that are meant, with their reasons. All others are findings."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from benchmarks.reliability.programs import known_errors as errors
from benchmarks.reliability.programs import known_values as values
from benchmarks.reliability.programs.difference import Difference
from benchmarks.reliability.programs.layouts import layout_of_pytorch
from benchmarks.reliability.programs.limits import at_a_limit
from benchmarks.reliability.programs.program import Program
from benchmarks.reliability.programs.second_gradients import through_a_result


class Known(NamedTuple):
    """A kind of difference that is meant."""

    name: str
    reason: str
    is_it: Callable[[Program, Difference], bool]


KNOWN = (
    Known(
        "keeps more for the gradient",
        "Attention keeps its operands and its result and cross entropy its logits: PyTorch keeps probabilities. Recurrent "
        "layers keep their result, a copy in PyTorch. `tanhshrink` "
        "and `ndtr` keep their operand, where PyTorch keeps the hyperbolic tangent and the scaled operand, and so does "
        "`rms_norm` for the gradient of its weight alone. A write to it between forward and backward pass is an error here and "
        "none there.",
        errors.keeps_more,
    ),
    Known(
        "a write that PyTorch does not notice",
        "A write to an operand of `kron` before the backward pass is an error here. PyTorch does not notice it, and computes "
        "with the new values.",
        errors.unnoticed,
    ),
    Known(
        "PyTorch copies",
        "`tensordot` of axes of length 1 keeps sums in PyTorch, which are copies, and `matmul` of three and more permuted "
        "axes a copy in which they are joined; here both keep their operands. LSTMs, and "
        "layers with `batch_first` or of permuted axes, keep a copy of their input on PyTorch's CPU, and a view of it here and "
        "on the device; attention, linear layers, `rms_norm` and cross entropy keep all operands there, and recurrent layers "
        "their result.",
        errors.copied,
    ),
    Known(
        "a view in PyTorch",
        "`max_pool1d` is a squeezed `max_pool2d` in PyTorch on all devices but the CPU, so its result is a view: a tensor that "
        'requires a gradient cannot be copied into one that was computed within `no_grad`. PyTorch\'s device "meta" refuses '
        "it with the same sentence.",
        errors.view_in_pytorch,
    ),
    Known(
        "a gradient is a broadcast",
        "A gradient that `autograd.grad` returns may be a broadcast of one number in PyTorch, where a write to it is an error. "
        "Its elements are in memory of their own here.",
        errors.broadcast_in_pytorch,
    ),
    Known(
        "the gradient of padding",
        "With `create_graph` the gradient of padding by reflection or by the edge requires a gradient in PyTorch, which is 0, "
        "and none here: it is a sum of slices.",
        values.edge_of_padding,
    ),
    Known(
        "at infinities and NaN",
        "Values and gradients at infinities, NaN and very large numbers are limits here, and NaN stays NaN, where PyTorch's "
        "formulas divide or subtract infinities: `limits.py` lists the ops.",
        at_a_limit,
    ),
    Known(
        "the sign of a zero",
        "The sign of the zero that `softshrink` makes of -0.0 depends in PyTorch on the position in the tensor, norms and sums "
        "at indices of zeros have one sign or the other by the order of their terms, extrema of zeros are one of them, and "
        "`relu` keeps -0.0 on PyTorch's CPU. "
        "`copysign` and `atan2` show it, and `copysign` the sign of NaN, which processors choose.",
        values.sign_of_zero,
    ),
    Known(
        "a hook of a view",
        "PyTorch gives a view a new node when its base was written to, also without gradients: its hooks are dropped, and "
        "other views do not lead to it. Hooks stay here, where the values of the tape are the same.",
        values.hook_of_a_view,
    ),
    Known(
        "one of several zeros",
        "`topk`, `kthvalue` and `median` choose among equal elements, and the gradient goes there: PyTorch promises no order.",
        values.one_of_several_zeros,
    ),
    Known(
        "the joint of prelu",
        "At 0 PyTorch's gradient of `prelu` is that of the left side, and its second derivative that of the right side.",
        values.joint_of_prelu,
    ),
    Known(
        "a gradient that PyTorch does not have",
        "Derivatives that PyTorch does not implement are defined here: zeros almost everywhere (`heaviside`, `floor_divide`), "
        "second derivatives (`cdist`, `hardsigmoid`), derivatives of sorted elements (`unique`).",
        errors.defined_gradient,
    ),
    Known(
        "zeros off the tape",
        "The gradient of a tensor before a write to all of its elements is zeros, which do not depend on anything. PyTorch "
        "sees this for `v[:] = 1.0`, but not for `v[-1, :, None] = 1.0` of one row, and puts the zeros on its tape.",
        errors.zeros_off_the_tape,
    ),
    Known(
        "PyTorch is less exact",
        "In double precision PyTorch's Bessel functions are off by up to 1e-6, its Airy function by 3e-6, its derivative of "
        "`digamma` by 1e-9, and its derivative of `hardsigmoid` is 1/6 in single precision.",
        values.less_exact,
    ),
    Known(
        "rounding decides",
        "A sum that cancels, as in `cross(x, x)`, an inverse, `logaddexp(-1, -1)` or the divergence of equal distributions, "
        "or a norm of equal numbers, is 0 or a unit in the last place: `argwhere`, `ne` and `remainder` show which, products "
        "with infinity, and errors of shapes. `unique` counts numbers that rounding separates or makes equal: an index may be "
        "out of range in one library.",
        values.rounding_decides,
    ),
    Known(
        "windows that overlap",
        "`select_scatter`, `slice_scatter` and `diagonal_scatter` write to one element of a copy here. In PyTorch the copy of "
        "windows that share memory, such as `unfold` makes, shares memory in the same way, so that a write reaches several.",
        values.windows_overlap,
    ),
    Known(
        "differences of nothing",
        "`diff` along an axis of length 0 returns its argument in PyTorch, which then requires a gradient after a write to the "
        "result. It returns a new tensor here, as always.",
        lambda program, d: values.differences_of_nothing(program, d) or errors.difference_of_nothing(program, d),
    ),
    Known(
        "a checkpoint of changed inputs",
        "A checkpoint whose inputs, such as weights after an optimizer's step, were overwritten before it runs again raises an "
        "error here. PyTorch does not notice it, and computes the gradient of other values than those of the forward pass.",
        errors.checkpoint_of_changed_inputs,
    ),
    Known(
        "a linear layer of a device",
        "With `create_graph` the gradient of the weight of a linear layer requires a gradient on PyTorch's devices, on which "
        "PyTorch computes the gradients of all operands in one op, and not on its CPU.",
        values.linear_layer_of_a_device,
    ),
    Known(
        "second gradients through a result",
        "A second gradient passes through the result of attention here, and through that of `logcumsumexp` in PyTorch, and "
        "through their operands in the other library. Hooks of the result, and gradients with respect to it, show it: without "
        "the hook, and with `logcumsumexp` composed of other ops, both libraries have the same values.",
        through_a_result,
    ),
    Known(
        "a layout of PyTorch",
        "PyTorch keeps the order of axes of a permuted operand in results of elementwise ops, and factors of matrices are "
        "column-major; results are row-major here. By that `reshape`, `flatten` and `contiguous` are copies or views, as "
        "PyTorch documents, and a later write reaches other tensors. Results of `einsum`, `bilinear` and attention layers are "
        "views of memory of their own, which lose their hooks at a write, and gradients may be a broadcast of one element. "
        "With all new tensors row-major, in memory of their own, PyTorch has the same values.",
        layout_of_pytorch,
    ),
    Known(
        "gradients that cancel",
        "The derivative of a sum of normalized numbers is 0, and so is the derivative of `cross(x, x)`: terms as large as the "
        "gradient that arrives cancel, and leave their rounding, in PyTorch as well, in another order. `.grad` of an earlier "
        "backward pass receives the terms one by one here, which takes no memory for their sum.",
        values.cancelled_gradients,
    ),
    Known(
        "attention to one key",
        "The only key of attention has weight 1, whatever the query is, and the gradients of both are 0. Here the gradient of "
        "a weight is the difference of two sums, as in FlashAttention, which leaves the rounding of their terms.",
        values.attention_to_one_key,
    ),
    Known(
        "second gradients of attention",
        "On PyTorch's device attention is one op whose backward pass has no derivative, as on CUDA. "
        "`sdpa_kernel(SDPBackend.MATH)` composes it of ops that have one.",
        errors.second_gradient_of_attention,
    ),
    Known(
        "statistics of a checkpoint",
        "A captured forward pass counts a batch once, as with `torch.compile`: what its backward pass computes again in a "
        "checkpoint does not update running statistics, which it does after an eager forward pass.",
        values.recomputed_statistics,
    ),
    Known(
        "zeros for no gradient",
        "An argument that no result depends on has gradient 0 after a captured forward pass (as with `torch.compile`), and "
        "none after an eager one.",
        values.zero_for_none,
    ),
)


def explained(program: Program, difference: Difference) -> str:
    """The name of the known difference that this is; empty if it is a finding."""
    return next((k.name for k in KNOWN if k.is_it(program, difference)), "")
