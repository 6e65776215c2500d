"""Find the communities of a graph with a graph convolutional network (Kipf and Welling, arXiv:1609.02907).

Of 400 people in four communities, 5 members each are labelled, and acquaintances are edges, mostly within a community.
Messages follow the edges: gather the sender's features by index, and sum them at the receiver with `index_add`.

python examples/gnn.py
"""

import argparse

import numpy as np

import polyhal as ph
from polyhal import nn, optim

COMMUNITIES, SIZE, FEATURES, KNOWN = 4, 100, 8, 5


def make_graph(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return edges (2, E) in both directions, weakly informative features, and the community of each node."""
    label = np.repeat(np.arange(COMMUNITIES), SIZE)
    chance = np.where(label[:, None] == label, 0.06, 0.006)
    edges = np.argwhere(np.triu(rng.random(chance.shape) < chance, 1)).T
    features = np.eye(COMMUNITIES, FEATURES)[label] + rng.normal(size=(len(label), FEATURES))
    return np.concatenate([edges, edges[::-1]], 1), features.astype(np.float32), label


class GraphConv(nn.Module):
    """Linear layer, followed by the mean over each node and its neighbours."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x, edges):
        x = self.linear(x)
        sender, receiver = edges
        total = x.index_add(0, receiver, x[sender])
        count = ph.ones(len(x), device=x.device).index_add(0, receiver, ph.ones(len(sender), device=x.device))
        return total / count[:, None]


class GCN(nn.Module):
    """Model with two rounds of messages, from features (N, F) and edges (2, E) to logits (N, communities)."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.conv1 = GraphConv(FEATURES, width)
        self.conv2 = GraphConv(width, width)
        self.head = nn.Linear(width, COMMUNITIES)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x, edges):
        x = self.dropout(self.conv1(x, edges).relu())
        x = self.dropout(self.conv2(x, edges).relu())
        return self.head(x)


def train(x, edges, y, known, hidden, steps) -> str:
    """Train a network on the labels of `known` nodes, and report its accuracy on `hidden` ones."""
    ph.manual_seed(0)
    model = GCN().to(x.device)
    optimizer = optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-3)

    @ph.jit
    def step():
        loss = nn.functional.cross_entropy(model(x, edges)[known], y[known])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    def accuracy() -> float:
        model.eval()
        with ph.no_grad():
            right = model(x, edges).argmax(dim=1) == y
        model.train()
        return right[hidden].float().mean().item()

    before = accuracy()
    for _ in range(steps):
        loss = step()
    return f"loss {loss.item():.3f}, accuracy {before:.1%} before training, {accuracy():.1%} after"


def main() -> None:
    """Train with and without the edges."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="for example opencl:1 or numpy; default: the best device")
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    device = ph.Device(args.device)

    edges, features, label = make_graph(np.random.default_rng(0))
    known = (np.arange(KNOWN) + SIZE * np.arange(COMMUNITIES)[:, None]).ravel()
    hidden = np.setdiff1d(np.arange(len(label)), known)
    print(
        f"{len(label)} nodes, {edges.shape[1] // 2} edges, {len(known)} labels; {device}; chance is {1 / COMMUNITIES:.0%}"
    )

    features, edges, label, known, hidden = (
        ph.tensor(a, device=device) for a in (features, edges, label, known, hidden)
    )
    print("without edges:", train(features, edges[:, :0], label, known, hidden, args.steps))
    print("with edges:   ", train(features, edges, label, known, hidden, args.steps))


if __name__ == "__main__":
    main()
