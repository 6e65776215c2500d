"""What lowering functions share; the templates are in shaders/wgsl/lib."""
