"""Reports of `polyhal doctor --report`: what a machine's devices are, which checks they pass and how fast they are."""
