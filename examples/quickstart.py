"""Train a small network to compute sin(x)."""

import polyhal as ph
from polyhal import nn, optim

ph.manual_seed(0)
x = ph.linspace(-3, 3, 256).reshape((-1, 1))
y = x.sin()

model = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = optim.Adam(model.parameters(), lr=1e-2)

for step in range(501):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step:3d}  loss {loss.item():.6f}")

ph.save({"model": model.state_dict()}, "sine.safetensors")
print("sin(1) is about", model(ph.tensor([[1.0]])).item())
