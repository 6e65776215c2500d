"""Arguments that differ from PyTorch's on purpose, with the reasons."""

from __future__ import annotations

LEFT_OUT: dict[str, str] = {
    "layout": "tensors are dense",
    "memory_format": "memory layouts are chosen by the passes",
    "out": "results are new tensors; a method with a trailing underscore overwrites one",
    "pin_memory": "the data loader pins memory by itself",
    "sparse_grad": "tensors are dense",
}
"""Arguments that no function here has."""

BY_POSITION: dict[str, tuple[str, ...]] = {
    "b": ("B", "other", "y"),
    "dim": ("axes",),
    "dims": ("axis",),
    "element": ("elements",),
    "end": ("stop",),
    "exponent": ("y",),
    "ext_tensor": ("x",),
    "f": ("path",),
    "fill_value": ("value",),
    "from": ("low",),
    "indices": ("indices_or_sections",),
    "input2": ("L", "tau"),
    "input3": ("other",),
    "other": ("y", "x", "q", "B", "src"),
    "sections": ("indices_or_sections",),
    "self": ("x",),
    "size": ("shape",),
    "split_size": ("sizes",),
    "split_size_or_sections": ("sizes",),
    "steps": ("num",),
    "tensor": ("y", "x"),
    "tensor_indices_or_sections": ("indices_or_sections",),
    "test_element": ("test_elements",),
    "to": ("high", "low"),
    "value": ("src",),
}
"""Arguments that mean the same in the same place and have another name here, often the Array API's."""

_CHECKS = "gradcheck compares results of the forward and backward pass with finite differences, and nothing else"
ACCEPTED: dict[str, str] = {
    r"(Tensor\.)?(b|add|badd)?mm: `out_dtype` .*|(Tensor\.)?(addmm|baddbmm): `out_dtype` .*": "cast the result",
    r"(Tensor\.)?divide_?: `rounding_mode` .*": "`div` has it; `divide` is the Array API's",
    r"(Tensor\.)?subtract_?: `alpha` .*": "`sub` has it; `subtract` is the Array API's",
    r"Tensor\.expand: `implicit` .*": "internal to PyTorch",
    r"bernoulli: `p`, argument 2, is `shape`": "a number in its place is `p`",
    r"randint_like: `high`, argument 2, is `low`": "the only bound is the upper one",
    r"repeat_interleave: `repeats`, argument 1, is `x`": "the overload without a tensor, for PyTorch's own use",
    r"(std|var)_mean: `unbiased`, argument 2, is `dim`": "a bool in its place is `unbiased`",
    r"tensordot: `a`, argument 1, is `x`": "given by position",
    r"load: `map_location`, argument 2, is `device`": "the device, or by keyword `map_location`",
    r"load: `(pickle_module|mmap).*|save: `pickle.*": "nothing is pickled",
    r"save: `obj`, argument 1, is `state`|set_rng_state: `new_state`.*|set_default_dtype: `d`.*": "given by position",
    r"use_deterministic_algorithms: `warn_only` .*": "ops that are not deterministic are replaced, not refused",
    r"nn\.functional\.elu_: .*": "internal to PyTorch",
    r"autograd\.backward: `grad_variables` .*": "the old name of `grad_tensors`",
    r"(Tensor\.)?stft: `align_to_window` .*": "windows shorter than `n_fft` are padded, as by default",
    r"func\.jvp: `strict` .*": "results that do not depend on an input have tangents of zeros",
    r"autograd\.enable_grad: `orig_func` .*": "internal to PyTorch",
    r"autograd\.grad(grad)?check: .*": _CHECKS,
    r"autograd\.functional\.(hessian|jacobian): `(vectorize|outer_jacobian_strategy)` .*": "the same values, found faster",
    r"utils\.data\.DataLoader: `(pin_memory_device|in_order)` .*": "batches come in order, to the device of the loader",
}
"""Patterns of other differences, `name: what differs`, and why they are right."""
