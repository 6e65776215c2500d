// Definitions shared by all sorting kernels: rows in memory, and keys whose unsigned order is the requested order.
//
// x and both results, values and indices, are rows along one axis, numbered over up to three outer axes of lengths
// (.., rows1, rows2). Kernels declare the operands that they use, take a SortGeometry, and begin with UNPACK_GEOMETRY;
// then ROW_BEGIN(x, row) is the index of a row's first element and x_step the stride along it.
//
// RAW is an unsigned type as wide as an element. key_of flips the sign bit of integers; floats of either sign are made to count
// upwards, -0 counts as 0 and NaN as the largest; DESCENDING inverts all bits. Elements are moved as bits: in a
// register of a floating-point type the payload of a NaN might change.
//
// An ITEM is a key with a position, so no two items are equal and any sorting network is stable. It takes 64 bits where PACKED.

#ifndef POLYHAL_SORT_ITEMS
#define POLYHAL_SORT_ITEMS

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef DESCENDING
#define DESCENDING 0
#endif
#include "lib/dtypes.h"

typedef struct {
    long x_strides[4], values_strides[4], indices_strides[4];  // of the three outer axes, then along a row; in elements
    ulong rows;
    uint length;        // elements of a row
    uint keep;          // number of elements wanted, the first in order
    uint rows1, rows2;  // lengths of the last two outer axes
} SortGeometry;

// Members are copied to variables, so that no compiler reloads the struct after each store.
#define UNPACK_GEOMETRY \
    const ulong rows = geometry.rows; \
    const uint length = geometry.length, keep = geometry.keep, rows1 = geometry.rows1, rows2 = geometry.rows2; \
    const long x_step = geometry.x_strides[3], values_step = geometry.values_strides[3], \
               indices_step = geometry.indices_strides[3];
#define ROW_BEGIN(name, row) \
    ((long)name##_offset + (long)((row) / rows2 / rows1) * geometry.name##_strides[0] + \
     (long)((row) / rows2 % rows1) * geometry.name##_strides[1] + (long)((row) % rows2) * geometry.name##_strides[2])
#define X_PARAMETER __global const RAW *x, const ulong x_offset
#define RESULT_PARAMETERS __global RAW *values, const ulong values_offset, __global long *indices, const ulong indices_offset

#define RAW_BITS_bool_ 8
#define RAW_BITS_uint8 8
#define RAW_BITS_int8 8
#define RAW_BITS_uint16 16
#define RAW_BITS_int16 16
#define RAW_BITS_float16 16
#define RAW_BITS_bfloat16 16
#define RAW_BITS_uint32 32
#define RAW_BITS_int32 32
#define RAW_BITS_float32 32
#define RAW_BITS_uint64 64
#define RAW_BITS_int64 64
#define RAW_BITS_float64 64
#define RAW_BITS CONCAT(RAW_BITS_, DTYPE)

#define SIGNED_bool_ 0
#define SIGNED_uint8 0
#define SIGNED_uint16 0
#define SIGNED_uint32 0
#define SIGNED_uint64 0
#define SIGNED_int8 1
#define SIGNED_int16 1
#define SIGNED_int32 1
#define SIGNED_int64 1
#define SIGNED_float16 1
#define SIGNED_bfloat16 1
#define SIGNED_float32 1
#define SIGNED_float64 1
#define SIGNED CONCAT(SIGNED_, DTYPE)

// The bits of infinity where DTYPE is a float; larger magnitudes are NaN.
#define INFINITE_float16 0x7c00
#define INFINITE_bfloat16 0x7f80
#define INFINITE_float32 0x7f800000
#define INFINITE_float64 0x7ff0000000000000
#define INFINITE_int8 0
#define INFINITE_int16 0
#define INFINITE_int32 0
#define INFINITE_int64 0
#define INFINITE CONCAT(INFINITE_, DTYPE)

#if RAW_BITS == 8
#define RAW uchar
#elif RAW_BITS == 16
#define RAW ushort
#elif RAW_BITS == 32
#define RAW uint
#else
#define RAW ulong
#endif

// Only the sign bit.
#define SIGN ((RAW)((RAW)1 << (RAW_BITS - 1)))

static inline RAW key_of(RAW bits) {
    RAW key = bits;
#if SIGNED
    key ^= SIGN;
#if INFINITE != 0
    const RAW magnitude = bits & (RAW)~SIGN;
    if (bits & SIGN) key = magnitude ? (RAW)~bits : SIGN;
    if (magnitude > (RAW)INFINITE) key = (RAW)~(RAW)0;
#endif
#endif
#if DESCENDING
    key = (RAW)~key;
#endif
    return key;
}

// The bits of an element that comes after all others.
#if !SIGNED
#define LAST_BITS (DESCENDING ? (RAW)0 : (RAW)~(RAW)0)
#elif INFINITE != 0
#define LAST_BITS (DESCENDING ? (RAW)(SIGN | INFINITE) : (RAW)~(RAW)0)
#else
#define LAST_BITS (DESCENDING ? SIGN : (RAW)~SIGN)
#endif

#define PACKED (RAW_BITS <= 32)
#if PACKED
#define ITEM ulong
#define PRECEDES(a, b) ((a) < (b))
#define POSITION_OF(item) ((uint)(item))
#define LAST_ITEM ULONG_MAX
#else
#define ITEM ulong2
#define PRECEDES(a, b) ((a).x < (b).x || ((a).x == (b).x && (a).y < (b).y))
#define POSITION_OF(item) ((uint)(item).y)
#define LAST_ITEM ((ulong2)(ULONG_MAX))
#endif

static inline ITEM item_of(RAW bits, uint position) {
#if PACKED
    return (ulong)key_of(bits) << 32 | position;
#else
    return (ITEM)(key_of(bits), position);
#endif
}

#endif
