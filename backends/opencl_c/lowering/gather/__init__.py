"""Reading and adding by index in OpenCL; kernels in shaders/opencl/gather."""
