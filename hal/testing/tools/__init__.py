"""Tools that use the kit: the coverage page, the tuner, the check of changed kernels."""
