"""The kernels, in CUDA C++. Each file compiles alone: every constant has a default."""
