"""Complex numbers: functions of them, and for each op that takes them a rule in terms of real and imaginary parts.

A complex tensor is a pair of real tensors of float32 or float64. Ops on it are ops on the pair, so that every device has them,
captured steps fuse them, and gradients follow from those of real ops. The gradient of a real loss with respect to `z` is
`dL/d(z.real) + 1j * dL/d(z.imag)`: PyTorch's convention, the conjugate Wirtinger derivative.
"""
