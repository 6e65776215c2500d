// Elements of the sorting kernels, as their bits: KEY_OF gives unsigned numbers of as many bits, RAW, that order as wanted.
// The sign bit of integers is flipped; floats of either sign are made to count upwards, -0 counts as 0 and NaN as the
// largest; DESCENDING inverts all. Bits are moved unchanged, because through a register of another type a NaN might not come
// back the same.
//
// An ITEM is a key with a position, which makes every item differ: their order is stable, whatever a network does. It fits in
// 64 bits where PACKED. RAW_AT(x, at) reads an element of operand x of lib/rows.h.

#ifndef POLYHAL_SORT_ITEMS
#define POLYHAL_SORT_ITEMS

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef DESCENDING
#define DESCENDING 0
#endif
#define WIDTH 1
#include "lib/rows.h"

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

// The bits of infinity, of floats; larger magnitudes are NaN.
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

#define RAW_AT(name, at) (((__global const RAW *)name)[at])
#define PUT_RAW(name, at, bits) (((__global RAW *)name)[at] = (bits))

// Only the sign bit.
#define SIGN ((RAW)((RAW)1 << (RAW_BITS - 1)))

inline RAW key_of(RAW bits) {
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

// The bits of an element that no other one comes after.
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
#define PLACE_OF(item) ((uint)(item))
#define LAST_ITEM ULONG_MAX
#else
#define ITEM ulong2
#define PRECEDES(a, b) ((a).x < (b).x || ((a).x == (b).x && (a).y < (b).y))
#define PLACE_OF(item) ((uint)(item).y)
#define LAST_ITEM ((ulong2)(ULONG_MAX))
#endif

inline ITEM item_of(RAW bits, uint place) {
#if PACKED
    return (ulong)key_of(bits) << 32 | place;
#else
    return (ITEM)(key_of(bits), place);
#endif
}

#endif
