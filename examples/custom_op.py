"""Declare a new op, test it with the conformance kit, and train with it in a captured step.

The op is squareplus, (x + sqrt(x^2 + b)) / 2, a smooth relu without exponentials (Barron 2021, arXiv:2112.11687). It is
declared by its formula in NumPy, its decomposition into other ops, its gradient, and an expression from which OpenCL
and WebGPU kernels are generated, separate and fused with adjacent ops.
"""

import argparse

import numpy as np

import polyhal as ph
from polyhal import nn, optim
from polyhal.hal.ops.declare import Tolerance
from polyhal.hal.ops.pointwise.elementwise import elementwise
from polyhal.hal.testing import check

squareplus = elementwise(
    "squareplus",
    lambda x, *, b=4.0: (x + np.sqrt(x * x + b)) / 2,
    "`(x + sqrt(x^2 + b)) / 2`.",
    promotion="float",
    decompose=lambda x, *, b: (x + ph.sqrt(x * x + b)) * 0.5,
    expression="K(0.5) * (x + sqrt(x * x + b))",
    gradient=lambda g, x, *, b: g * (0.5 + 0.5 * x / ph.sqrt(x * x + b)),
    # The sum cancels for negative x, so units are counted at 1. A root of 3 units, and four roundings.
    tolerance=Tolerance(8.0, floor=1.0),
)


def main() -> None:
    """Check the op on the device, fit a sine with it, and report the error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default=None)
    device = ph.Device(parser.parse_args().device)
    print(ph.explain("squareplus", device, (256, 64)))
    print(f"{check('squareplus', device)} checks passed: values, layouts, dtypes, gradients, second gradients")

    ph.manual_seed(0)
    inputs = ph.linspace(-3, 3, 256, device=device).reshape((-1, 1))
    targets = inputs.sin()
    first, second = nn.Linear(1, 64).to(device), nn.Linear(64, 1).to(device)
    optimizer = optim.Adam([*first.parameters(), *second.parameters()], lr=1e-2)

    @ph.jit
    def step() -> ph.Tensor:
        loss = nn.functional.mse_loss(second(squareplus(first(inputs), b=0.1)), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for i in range(400):
        loss = step()
        if i % 100 == 99:
            print(f"step {i + 1:3d}  loss {loss.item():.6f}")
    print("squared error below 0.001:", loss.item() < 0.001)


if __name__ == "__main__":
    main()
