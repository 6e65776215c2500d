"""Factorizations, solvers and spectra of matrices: programs for devices with kernels for small matrices, LAPACK for others."""
