"""Helpers of lowering functions; the corresponding templates are in shaders/wgsl/lib."""
