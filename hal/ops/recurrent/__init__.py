"""Recurrent layers: one op for each runs a layer over a whole sequence, and one for its gradient.

The products with the input are made before, over all time steps at once; the ops take their results. The gradient ops
take the gates of all steps that an LSTM kept, or compute them again with one product, and the gradient of the weights
with another; only the part that depends on the next step is computed step by step.

Each formula is written once, on the `Arithmetic` of tensors or of NumPy arrays, and the walks through the time steps are
in `sequence`. A new cell is a function of a step, one of its slopes, and declarations.
"""
