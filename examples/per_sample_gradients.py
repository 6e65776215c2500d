"""Function transforms: gradients per sample, and an ensemble of networks in one call, with `polyhal.func`.

Some training labels are wrong, but it is unknown which. `vmap(grad(...))` computes a separate gradient for each sample; wrong
labels are detected by its norm. Then eight networks are trained at once on the remaining samples: `stack_module_state` stacks
their weights, and `vmap` over them is one batched product per layer.

python examples/per_sample_gradients.py
"""

import argparse

import numpy as np
from digits import digits

import polyhal as ph
from polyhal import nn, optim
from polyhal.func import functional_call, grad, stack_module_state, vmap

WRONG, MEMBERS = 100, 8


def make_model() -> nn.Module:
    """Return a model from images (N, 1, 8, 8) to logits (N, 10)."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))


def main() -> None:
    """Find wrong labels, train an ensemble without them, and report both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="for example opencl:1 or numpy; default: the best device")
    parser.add_argument("--steps", type=int, default=150)
    args = parser.parse_args()
    device = ph.Device(args.device)
    ph.manual_seed(0)
    rng = np.random.default_rng(0)

    training, test = digits()
    labels = training.arrays[1].copy()
    wrong = rng.choice(len(labels), WRONG, replace=False)
    labels[wrong] = (labels[wrong] + rng.integers(1, 10, WRONG)) % 10
    x, y = ph.tensor(training.arrays[0], device=device), ph.tensor(labels, device=device)

    models = [make_model().to(device) for _ in range(MEMBERS)]
    model = models[0]
    optimizer = optim.Adam(model.parameters(), lr=1e-2)

    @ph.jit
    def step():
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def sample_loss(parameters, image, label):
        logits = functional_call(model, parameters, (image[None],))
        return nn.functional.cross_entropy(logits, label[None])

    def suspects() -> np.ndarray:
        """Return the samples with the largest gradients."""
        parameters = {name: p.detach() for name, p in model.named_parameters()}
        gradients = vmap(grad(sample_loss), in_dims=(None, 0, 0))(parameters, x, y)
        norms = sum(g.square().flatten(1).sum(dim=1) for g in gradients.values())
        return norms.argsort(descending=True)[:WRONG].numpy()

    def found() -> float:
        return float(np.isin(suspects(), wrong).mean())

    print(f"{device}: {WRONG} of {len(labels)} labels are wrong, {WRONG / len(labels):.1%}")
    print(f"before training: {found():.1%} of the {WRONG} largest gradients belong to wrong labels")
    for _ in range(args.steps // 3):
        step()
    print(f"after some training: {found():.1%}")

    rest = ph.tensor(np.setdiff1d(np.arange(len(labels)), suspects()), device=device)
    x, y = x[rest], y[rest]
    parameters, buffers = stack_module_state([make_model().to(device) for _ in range(MEMBERS)])
    optimizer = optim.Adam(parameters.values(), lr=1e-2)
    base = make_model().to(device)
    members = vmap(lambda p, b, images: functional_call(base, (p, b), (images,)), in_dims=(0, 0, None))

    @ph.jit
    def ensemble_step():
        logits = members(parameters, buffers, x)  # (members, N, 10)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), y.repeat(MEMBERS)) * MEMBERS
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for _ in range(args.steps):
        ensemble_step()
    with ph.no_grad():
        logits = members(parameters, buffers, ph.tensor(test.arrays[0], device=device))
    each = (logits.argmax(dim=-1).numpy() == test.arrays[1]).mean(axis=1)
    together = (logits.softmax(dim=-1).mean(dim=0).argmax(dim=-1).numpy() == test.arrays[1]).mean()
    print(
        f"trained without them: {MEMBERS} networks {each.min():.1%} to {each.max():.1%} right, as an ensemble {together:.1%}"
    )


if __name__ == "__main__":
    main()
