"""The checks of the conformance kit: contract, forward, gradients, and common helpers."""
