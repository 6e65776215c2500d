"""The checks of the conformance kit: contract, forward, gradients, and what they share."""
