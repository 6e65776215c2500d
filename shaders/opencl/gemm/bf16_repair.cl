// Recomputes results of a split float32 product that are not finite. Splitting turns infinities and numbers next to the
// largest into NaN; such results are rare, so this kernel is small and slow. If all results are finite it only reads them.

#ifndef REAL
#define REAL float
#endif
#define ALIGNED 0
#ifndef WIDTH
#define WIDTH 1
#endif
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "lib/epilogue.h"
#include "gemm/operands.h"

// Results that a work-item checks at a time, so that several loads are in flight.
#define PER_ITEM 4

__kernel void gemm_bf16_repair(
    __global const float *a, const ulong a_offset, __global const float *b, const ulong b_offset,
    EPILOGUE_PARAMETERS
    __global float *out, const ulong out_offset, const ulong size, const GemmGeometry geometry) {
    UNPACK_GEOMETRY
    const ulong step = get_global_size(0) * PER_ITEM;
    out += out_offset;
    for (ulong first = get_global_id(0) * PER_ITEM; first < size; first += step) {
        const uint count = min((ulong)PER_ITEM, size - first);
        int finite = 1;
#pragma unroll
        for (uint i = 0; i < PER_ITEM; i++) finite &= IS_FINITE(float, out[min(first + i, size - 1)]);
        if (finite) continue;
        for (ulong at = first; at < first + count; at++) {
            if (IS_FINITE(float, out[at])) continue;
            const uint column = at % n, row = at / n % m, batch = at / n / m;
            const uint i2 = batch % batch2, i1 = batch / batch2 % batch1, i0 = batch / batch2 / batch1;
            __global const float *x = MATRIX_OF_A(i0, i1, i2) + a_offset + row * a_row;
            __global const float *y = MATRIX_OF_B(i0, i1, i2) + b_offset + column * b_column;
            float sum = 0;
            for (uint term = 0; term < k; term++) sum += x[term * a_column] * y[term * b_row];
#if EPILOGUE
            EPILOGUE_STEPS(sum, row, column, i0, i1, i2, 1)
#endif
            out[at] = sum;
        }
    }
}
