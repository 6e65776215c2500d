"""What lowering functions share; the corresponding templates are in shaders/wgsl/lib."""
