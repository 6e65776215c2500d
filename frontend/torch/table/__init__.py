"""ATen's ops as functions on Polyhal tensors, one file per family; `registration.py` has the decorators."""

from polyhal.torch.table import (  # noqa: F401
    activations,
    attention,
    convolution,
    creation,
    decompositions,
    distances,
    embeddings,
    foreach,
    fourier,
    grouped_products,
    indexing,
    library_ops,
    linear_algebra,
    loss_scaling,
    losses,
    margin_losses,
    normalization,
    optimizers,
    padding,
    pointwise,
    pooling,
    random,
    rearranging,
    recurrent,
    reductions,
    resampling,
    sorting,
    views,
)

from polyhal.torch.table import declared  # isort: skip  # noqa: F401  after the functions, which take precedence
