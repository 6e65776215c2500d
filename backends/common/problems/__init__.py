"""What a kernel must know of an op's operands, whatever the shader language: GEMM, convolution, attention, rows."""
