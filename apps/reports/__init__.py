"""Reports of `polyhal doctor --report`: a machine's devices, their conformance checks and their speed."""
