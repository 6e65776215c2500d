"""Searches and checks of kernels behind `polyhal tune` and `polyhal kernels`: candidates, workloads, timings, correctness."""
