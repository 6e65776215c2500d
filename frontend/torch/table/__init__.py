"""ATen's ops as functions on Polyhal tensors, a file for each family; `registration.py` says how they are declared."""

from polyhal.torch.table import (  # noqa: F401
    attention,
    creation,
    embeddings,
    indexing,
    linear_algebra,
    loss_scaling,
    losses,
    normalization,
    optimizers,
    pointwise,
    random,
    reductions,
    views,
)
