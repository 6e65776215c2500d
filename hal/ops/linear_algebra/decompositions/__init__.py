"""Factorizations, solvers and spectra of matrices, which LAPACK computes on the host."""
