"""From an op and specs to something that runs: the steps of the resolution, kernels that it skips, and its explanation."""
