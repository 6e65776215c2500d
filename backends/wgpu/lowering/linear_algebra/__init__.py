"""Dense linear algebra in WGSL: factors and solutions of batches of small matrices."""
