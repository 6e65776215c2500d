"""Dense linear algebra in OpenCL C: factors, solutions and spectra of small matrices, and panels of large ones."""
