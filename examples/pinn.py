"""Solve Burgers' equation with a network whose loss is the equation itself (a physics-informed network, PINN).

    u_t + u u_x = nu u_xx  for -1 < x < 1 and 0 < t < 1,  u(x, 0) = -sin(pi x),  u(-1, t) = u(1, t) = 0

The loss contains the network's first and second derivatives with respect to its inputs, by `grad(...,
create_graph=True)`, so its own gradient contains third derivatives. The solution is compared with the exact one (Cole
and Hopf's formula).

python examples/pinn.py --picture burgers.png
"""

import argparse

import numpy as np

import polyhal as ph
from polyhal import nn, optim

VISCOSITY = 0.05


def exact(x: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Return the solution at points (x, t), by Gauss-Hermite quadrature of the Cole-Hopf integral."""
    z, weight = np.polynomial.hermite.hermgauss(80)
    y = x[..., None] - np.sqrt(4 * VISCOSITY * t)[..., None] * z
    kernel = weight * np.exp(-np.cos(np.pi * y) / (2 * np.pi * VISCOSITY))
    return -(np.sin(np.pi * y) * kernel).sum(-1) / kernel.sum(-1)


def residual(model: nn.Module, x: ph.Tensor, t: ph.Tensor) -> ph.Tensor:
    """Return the residual of the equation at points (x, t), given as columns: zero for a solution."""
    u = model(ph.cat([x, t], dim=1))
    u_x, u_t = ph.autograd.grad(u, (x, t), ph.ones_like(u), create_graph=True)
    (u_xx,) = ph.autograd.grad(u_x, x, ph.ones_like(u_x), create_graph=True)
    return u_t + u * u_x - VISCOSITY * u_xx


def plot(picture: str, x: np.ndarray, t: np.ndarray, u: np.ndarray) -> None:
    """Draw the solution, and its values at four times next to the exact ones."""
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    image = left.pcolormesh(t, x, u, cmap="RdBu_r", shading="auto", rasterized=True)
    figure.colorbar(image, ax=left, label="u")
    left.set(xlabel="t", ylabel="x", title="network")
    for i, column in enumerate((0, 25, 50, 100)):
        right.plot(x[:, column], u[:, column], color=f"C{i}", label=f"t = {t[0, column]:.2f}")
        right.plot(x[:, column], exact(x, t)[:, column], "k:", label="exact" if i == 3 else None)
    right.set(xlabel="x", ylabel="u", title="the wave steepens and decays")
    right.legend(fontsize=8)
    figure.savefig(picture, dpi=80)


def main() -> None:
    """Train on the equation, and report the relative error of the solution."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="for example opencl:1 or numpy; default: the best device")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--picture", help="draw the solution in this PNG file")
    args = parser.parse_args()
    device = ph.Device(args.device)
    ph.manual_seed(0)

    model = nn.Sequential(
        nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)
    ).to(device)
    optimizer = optim.Adam(model.parameters(), lr=5e-3)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)

    # points of the equation, and points with a known solution: at the start time and at both ends
    x = (2 * ph.rand(400, 1, device=device) - 1).requires_grad_()
    t = ph.rand(400, 1, device=device).requires_grad_()
    x_start = ph.linspace(-1, 1, 100, device=device).reshape(-1, 1)
    x_ends = ph.ones(100, 1, device=device).copysign(x_start)
    known = ph.cat(
        [
            ph.cat([x_start, ph.zeros_like(x_start)], dim=1),
            ph.cat([x_ends, ph.rand(100, 1, device=device)], dim=1),
        ]
    )
    values = ph.cat([-(ph.pi * x_start).sin(), ph.zeros_like(x_ends)])

    @ph.jit
    def step() -> ph.Tensor:
        loss = residual(model, x, t).square().mean() + 10 * nn.functional.mse_loss(model(known), values)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss

    grid_x, grid_t = np.meshgrid(np.linspace(-1, 1, 101), np.linspace(0, 1, 101), indexing="ij")
    points = ph.tensor(np.stack([grid_x, grid_t], -1).reshape(-1, 2).astype(np.float32), device=device)
    solution = exact(grid_x, grid_t)

    def error() -> float:
        with ph.no_grad():
            difference = model(points).numpy().reshape(grid_x.shape) - solution
        return float(np.linalg.norm(difference) / np.linalg.norm(solution))

    print(f"{device}: relative error before training {error():.4f}")
    for i in range(args.steps):
        loss = step()
        if i % 500 == 499:
            print(f"step {i + 1:4d}  loss {loss.item():.6f}  relative error {error():.4f}")
    print(f"relative error after training {error():.4f}")
    if args.picture:
        with ph.no_grad():
            plot(args.picture, grid_x, grid_t, model(points).numpy().reshape(grid_x.shape))


if __name__ == "__main__":
    main()
