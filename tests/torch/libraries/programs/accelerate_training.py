"""accelerate: its training loop."""

from __future__ import annotations

import accelerate
import torch
from torch import nn

from tests.torch.libraries.cases import whole_case


def _train(device: str, mode: str) -> list[torch.Tensor]:
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(24, 4), torch.randn(24, 1))
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    # It chooses among devices that it knows, so that the program places tensors itself.
    accelerator = accelerate.Accelerator(cpu=True, device_placement=False, gradient_accumulation_steps=2)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    if mode == "compiled":
        model.compile()
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(accelerator.gather(loss.detach()))
    return [torch.stack([x.cpu().reshape(()) for x in losses]), *accelerator.unwrap_model(model).parameters()]


whole_case("accelerate", "training loop", _train, modes=("eager", "compiled"))
