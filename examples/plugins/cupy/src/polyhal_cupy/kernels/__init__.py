"""The kernels, in CUDA C++. Each file compiles by itself: every constant has a default."""
