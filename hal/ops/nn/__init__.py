"""Ops of neural networks: attention, convolution, pooling, norms, softmax, losses."""
