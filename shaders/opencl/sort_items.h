// Items of the sorting kernels: see sort_blocks.cl.

#ifndef POLYHAL_SORT_ITEMS
#define POLYHAL_SORT_ITEMS

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef PACKED
#define PACKED 1
#endif
// What the element is in a register: 0 unsigned, 1 signed, 2 float.
#ifndef KIND
#define KIND 2
#endif
#ifndef DESCENDING
#define DESCENDING 0
#endif
// An unsigned type as wide as the element: through a register, a NaN in half precision might not come back the same.
#ifndef RAW
#define RAW uint
#endif
#define WIDTH 1
#include "rows.h"

#define MOVE(from, at, to, there) (((__global RAW *)to)[there] = ((__global const RAW *)from)[at])

#if PACKED
#define KEY uint
#define KEY_BITS 32
#define AS_KEY as_uint
#define ITEM ulong
#define PRECEDES(a, b) ((a) < (b))
#define PLACE_OF(item) ((uint)(item))
#define LAST_ITEM ULONG_MAX
#else
#define KEY ulong
#define KEY_BITS 64
#define AS_KEY as_ulong
#define ITEM ulong2
#define PRECEDES(a, b) ((a).x < (b).x || ((a).x == (b).x && (a).y < (b).y))
#define PLACE_OF(item) ((uint)(item).y)
#define LAST_ITEM ((ulong2)(ULONG_MAX))
#endif

inline ITEM item_of(COMPUTE(DTYPE) value, uint place) {
#if KIND == 2
    const KEY bits = AS_KEY(value == 0 ? (COMPUTE(DTYPE))0 : value);
    const KEY sign = (KEY)1 << (KEY_BITS - 1);
    KEY key = value != value ? ~(KEY)0 : bits & sign ? ~bits : bits | sign;
#elif KIND == 1
    KEY key = AS_KEY(value) ^ (KEY)1 << (KEY_BITS - 1);
#else
    KEY key = (KEY)value;
#endif
#if DESCENDING
    key = ~key;
#endif
#if PACKED
    return (ulong)key << 32 | place;
#else
    return (ITEM)(key, place);
#endif
}

#endif
