// A batch of float32 matrices as PARTS bfloat16 matrices each: part 0 is the number rounded, the others what was left
// of it, rounded; three of them hold all bits of a number, at its full range. Lines are contiguous and `pitch`
// elements apart, so that they can be copied in whole pieces, the last filled up with zeros; parts are `part_size`
// elements apart, matrices lines * pitch. What is not finite stays so.
//
// With COPIED the matrices have elements of 16 bits, which are copied as they are: there is one part.

#ifndef PARTS
#define PARTS 3
#endif
// Whether four neighbours can be read at once.
#ifndef QUADS
#define QUADS 0
#endif
#ifndef COPIED
#define COPIED 0
#endif
#include "lib/dtypes.h"

#define PER_ITEM 4
#if COPIED
#define ELEMENT ushort
#else
#define ELEMENT float
#endif

__kernel void gemm_bf16_split(__global const ELEMENT *x, const ulong x_offset, __global ushort *parts, const uint length,
                           const uint lines, const uint pitch, const ulong part_size, const long x_line,
                           const long x_element, const uint batch1, const uint batch2, const long x_batch0,
                           const long x_batch1, const long x_batch2) {
    const uint at = get_global_id(0) * PER_ITEM, line = get_global_id(1), batch = get_global_id(2);
    if (at >= pitch || line >= lines) return;
    const uint i2 = batch % batch2, i1 = batch / batch2 % batch1, i0 = batch / batch2 / batch1;
    x += x_offset + (long)i0 * x_batch0 + (long)i1 * x_batch1 + (long)i2 * x_batch2 + line * x_line;
    parts += ((ulong)batch * lines + line) * pitch + at;
    ELEMENT rest[PER_ITEM];
    if (QUADS && at + PER_ITEM <= length) {
        const CONCAT(ELEMENT, 4) all = *(__global const CONCAT(ELEMENT, 4) *)(x + at);
        rest[0] = all.s0;
        rest[1] = all.s1;
        rest[2] = all.s2;
        rest[3] = all.s3;
    } else {
#pragma unroll
        for (uint i = 0; i < PER_ITEM; i++) rest[i] = at + i < length ? x[(at + i) * x_element] : (ELEMENT)0;
    }
#if COPIED
    *(__global ushort4 *)parts = (ushort4)(rest[0], rest[1], rest[2], rest[3]);
#else
#pragma unroll
    for (uint part = 0; part < PARTS; part++) {
        ushort bits[PER_ITEM];
#pragma unroll
        for (uint i = 0; i < PER_ITEM; i++) {
            bits[i] = bfloat16_of_float(rest[i]);
            rest[i] -= float_of_bfloat16(bits[i]);
        }
        *(__global ushort4 *)(parts + part * part_size) = (ushort4)(bits[0], bits[1], bits[2], bits[3]);
    }
#endif
}
