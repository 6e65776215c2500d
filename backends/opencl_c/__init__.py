"""Kernels in OpenCL C and the lowering functions that choose them, for every driver that runs OpenCL C or its PTX."""
