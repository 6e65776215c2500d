"""The tape of reverse-mode differentiation: nodes, gradient rules, the backward pass, and modes."""
