"""Write a kernel in OpenCL C and WGSL, check it against NumPy, and train with it in a captured step.

The kernel is a leaky "squared ReLU" whose slope is a number that may change in every call.
"""

import argparse

import numpy as np

import polyhal as ph
from polyhal import nn, optim

squared_relu = ph.kernel(
    "squared_relu",
    opencl="""
__kernel void squared_relu(__global const T *x, float slope, __global T *out, uint out_size) {
    size_t i = get_global_id(0);
    if (i < out_size) out[i] = x[i] > 0 ? x[i] * x[i] : (T)slope * x[i];
}""",
    wgsl="""
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= parameters.out_size) { return; }
    let v = x[id.x];
    out[id.x] = select(parameters.slope * v, v * v, v > 0.0);
}""",
    numpy=lambda x, slope: np.where(x > 0, x * x, slope * x),
    gradient=lambda g, x, slope: (g * ph.where(x > 0, 2 * x, slope), None),
)


def main() -> None:
    """Check the kernel, fit a sine, and report the error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default=None)
    device = ph.Device(parser.parse_args().device)
    print(ph.explain(squared_relu, device, (256, 64), 0.1))

    x = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    difference = squared_relu(ph.tensor(x, device=device), 0.1).numpy() - np.where(x > 0, x * x, np.float32(0.1) * x)
    print(f"largest difference from NumPy: {abs(difference).max():.1e}")

    ph.manual_seed(0)
    inputs = ph.linspace(-3, 3, 256, device=device).reshape((-1, 1))
    targets = inputs.sin()
    first, second = nn.Linear(1, 64).to(device), nn.Linear(64, 1).to(device)
    optimizer = optim.Adam([*first.parameters(), *second.parameters()], lr=1e-2)

    @ph.jit
    def step(slope: float) -> ph.Tensor:
        loss = nn.functional.mse_loss(second(squared_relu(first(inputs), slope)), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for i in range(400):
        loss = step(0.1)
        if i % 100 == 99:
            print(f"step {i + 1:3d}  loss {loss.item():.6f}")
    print("squared error below 0.001:", loss.item() < 0.001)


if __name__ == "__main__":
    main()
