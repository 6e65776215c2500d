// Rows of a tensor of any strides: `rows` lines along one axis, numbered over up to three further axes of lengths
// (.., rows1, rows2). ROW_OF(name, row) is where a row of operand `name` begins. A group of GROUP work-items takes `rows_each`
// rows one after the other, WIDTH elements at a time where the axis is contiguous (WIDTH > 1), else element by element,
// `name_step` apart.

#ifndef POLYHAL_ROWS
#define POLYHAL_ROWS

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef WIDTH
#define WIDTH 4
#endif
#define ALIGNED 0
#include "dtypes.h"
#include "vectors.h"
#include "groups.h"

typedef VEC(REAL) V;
#include "lanes.h"

#define ROW_PARAMETERS const ulong rows, const uint length, const uint rows_each, const uint rows1, const uint rows2
#define OPERAND(name) __global const STORAGE(DTYPE) *name, const ulong name##_offset
#define RESULT(name) __global STORAGE(DTYPE) *name, const ulong name##_offset
#define STRIDES(name) const long name##0, const long name##1, const long name##2, const long name##_step
#define ROW_OF(name, row) \
    ((long)name##_offset + (long)((row) / rows2 / rows1) * name##0 + (long)((row) / rows2 % rows1) * name##1 + \
     (long)((row) % rows2) * name##2)

#if WIDTH == 1
#define WHOLE length
#define READ(name, at, i) LOAD(DTYPE, name, (at) + (long)(i) * name##_step)
#define WRITE(name, value, at, i) STORE(DTYPE, value, name, (at) + (long)(i) * name##_step)
#define TAIL_BEGIN length
#else
#define WHOLE (length / WIDTH)
#define READ(name, at, i) LOADV(DTYPE, name + (at) + (i) * WIDTH)
#define WRITE(name, value, at, i) STOREV(DTYPE, value, name + (at) + (i) * WIDTH)
#define TAIL_BEGIN (length / WIDTH * WIDTH)
#endif
// The last, partial vector of a row, element by element; `i` counts elements. Its work-items are the first of the group.
#define FOR_VECTORS for (uint i = GROUP_ME; i < WHOLE; i += GROUP)
#define FOR_TAIL for (uint i = TAIL_BEGIN + GROUP_ME; i < length; i += GROUP)

#endif
