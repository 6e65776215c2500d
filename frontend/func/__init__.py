"""Transforms of functions: gradients, Jacobians and batches, which nest."""

from polyhal.func.derivatives import grad, grad_and_value, jvp, vjp
from polyhal.func.jacobian import hessian, jacfwd, jacrev
from polyhal.func.stateless import functional_call, replace_all_batch_norm_modules_, stack_module_state
from polyhal.func.vectorize import vmap

__all__ = [
    "functional_call",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "vjp",
    "vmap",
]
