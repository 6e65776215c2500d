"""ATen's ops as functions on Polyhal tensors, a file for each family; `registration.py` says how they are declared."""

from polyhal.torch.table import (  # noqa: F401
    activations,
    attention,
    creation,
    decompositions,
    distances,
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
    sorting,
    special,
    views,
)
