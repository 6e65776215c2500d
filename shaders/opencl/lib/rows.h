// Kernels over the rows of strided tensors: `rows` lines along one axis, numbered over up to three further axes of lengths
// (.., rows1, rows2). ROW_OF(name, row) is the offset of a row of operand `name`. LANES work-items, which are 1 or a whole
// group of GROUP, process `rows_each` rows in turn, WIDTH elements at a time if the axis is contiguous (WIDTH > 1), else
// single elements that are name_step apart.
//
// With ROW_VECTORS > 0 every work-item keeps ROW_VECTORS vectors of a row in registers, so that the row is read once;
// unless FULL, the last of them may lie past the end. With ROW_VECTORS 0 every pass reads the row again, on CPUs from the
// cache.
//
//   DECLARE_ROW(x)                  declares the registers for operand x; LOAD_ROW(x, at) loads them. Nothing without ROW_VECTORS
//   FOR_VECTORS body                for each vector of the work-item: i is its number in the row, and k < ACCUMULATORS the
//                                   accumulator that it goes to
//   FOR_TAIL body                   for each element i after the last whole vector
//   ROW_VALUE(x, at)                vector i of operand x; SET_ROW_VALUE(x, v) replaces it if rows are in registers
//   WRITE(out, v, at, i)            stores a vector
//   PREFETCH_NEXT_ROW(x, at)        prefetches vector i of the next row, on CPUs; once per operand
//   PREFETCH_NEXT_RESULT(out, at)   the same for a row that is written
//   REQUIRED_GROUP_SIZE             tells the compiler the group size, so that it limits registers for a group to fit
//   DECLARE_ACCUMULATORS(s, v)      declares the accumulators s[ACCUMULATORS], all v
//   SUM_ACCUMULATORS(s)             reduces the accumulators and their lanes to one REAL; so does MAX_ACCUMULATORS(s)

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
#ifndef ALIGNED
#define ALIGNED 0
#endif
#ifndef ROW_VECTORS
#define ROW_VECTORS 0
#endif
#ifndef FULL
#define FULL 0
#endif
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "lib/group_reduce.h"

typedef VEC(REAL) V;
#include "lib/lane_reduce.h"

#define ROW_PARAMETERS const ulong rows, const uint length, const uint rows_each, const uint rows1, const uint rows2
#define OPERAND(name) __global const STORAGE(DTYPE) *name, const ulong name##_offset
#define RESULT(name) __global STORAGE(DTYPE) *name, const ulong name##_offset
#define STRIDES(name) const long name##0, const long name##1, const long name##2, const long name##_step
#define ROW_OF(name, row) \
    ((long)name##_offset + (long)((row) / rows2 / rows1) * name##0 + (long)((row) / rows2 % rows1) * name##1 + \
     (long)((row) % rows2) * name##2)
#if LANES == GROUP
#define FIRST_ROW ((ulong)get_group_id(0) * rows_each)
#else
#define FIRST_ROW ((ulong)get_global_id(0) * rows_each)
#endif
#define FOR_ROWS for (ulong row = FIRST_ROW, last_row = min(row + rows_each, rows); row < last_row; row++)

// Elements to the next row, at most: a cache should not hold more of it.
#define MAX_PREFETCH_ROW 16384
#if PREFETCH_DISTANCE && WIDTH > 1
#define PREFETCH_NEXT_ROW(name, at) PREFETCH_READ(name + (at) + min(name##2, (long)MAX_PREFETCH_ROW) + i * WIDTH)
#define PREFETCH_NEXT_RESULT(name, at) PREFETCH_WRITE(name + (at) + min(name##2, (long)MAX_PREFETCH_ROW) + i * WIDTH)
#else
#define PREFETCH_NEXT_ROW(name, at)
#define PREFETCH_NEXT_RESULT(name, at)
#endif
#if WIDTH == 1
#define WHOLE length
#define READ(name, at, i) LOAD(DTYPE, name, (at) + (long)(i) * name##_step)
#define WRITE(name, value, at, i) STORE(DTYPE, value, name, (at) + (long)(i) * name##_step)
#define READ_SMALL(D, name, i) LOAD(D, name, name##_offset + (i))
#define TAIL_BEGIN length
#else
#define WHOLE (length / WIDTH)
#define READ(name, at, i) LOADV(DTYPE, name + (at) + (i) * WIDTH)
#define WRITE(name, value, at, i) STOREV(DTYPE, value, name + (at) + (i) * WIDTH)
#define READ_SMALL(D, name, i) LOADV(D, name + name##_offset + (i) * WIDTH)
#define TAIL_BEGIN (length / WIDTH * WIDTH)
#endif

#if ROW_VECTORS
#define REQUIRED_GROUP_SIZE __attribute__((reqd_work_group_size(GROUP, 1, 1)))
#define ACCUMULATORS (ROW_VECTORS < 4 ? ROW_VECTORS : 4)
#define FOR_VECTORS \
    _Pragma("unroll") for (uint slot = 0, k = 0, i = LANE_ID; slot < ROW_VECTORS; slot++, k = slot % ACCUMULATORS, i += LANES) \
        if (FULL || slot + 1 < ROW_VECTORS || i < WHOLE)
#define DECLARE_ROW(name) V name##_vectors[ROW_VECTORS];
#define LOAD_ROW(name, at) FOR_VECTORS name##_vectors[slot] = READ(name, at, i);
#define ROW_VALUE(name, at) name##_vectors[slot]
#define SET_ROW_VALUE(name, value) name##_vectors[slot] = value;
#else
#define REQUIRED_GROUP_SIZE
// Independent accumulators: a single one would wait for each addition to finish.
#define ACCUMULATORS 4
#define FOR_VECTORS \
    for (uint begin = LANE_ID; begin < WHOLE; begin += ACCUMULATORS * LANES) \
        _Pragma("unroll") for (uint k = 0, i = begin; k < ACCUMULATORS; k++, i += LANES) if (i < WHOLE)
#define DECLARE_ROW(name)
#define LOAD_ROW(name, at)
#define ROW_VALUE(name, at) READ(name, at, i)
#define SET_ROW_VALUE(name, value)
#endif
// The elements after the last whole vector, one for each of the first work-items.
#if ROW_VECTORS
#define FOR_TAIL for (uint i = 0; i < 0; i++)
#else
#define FOR_TAIL for (uint i = TAIL_BEGIN + LANE_ID; i < length; i += LANES)
#endif

#define DECLARE_ACCUMULATORS(name, value) \
    V name[ACCUMULATORS]; \
    _Pragma("unroll") for (uint a = 0; a < ACCUMULATORS; a++) name[a] = (V)(value);
#define SUM_ACCUMULATORS(name) LANES_SUM(sum_of_accumulators(name))
#define MAX_ACCUMULATORS(name) LANES_MAX(max_of_accumulators(name))

inline V sum_of_accumulators(const V *s) {
    V total = s[0];
    _Pragma("unroll") for (uint k = 1; k < ACCUMULATORS; k++) total += s[k];
    return total;
}

inline V max_of_accumulators(const V *s) {
    V top = s[0];
    _Pragma("unroll") for (uint k = 1; k < ACCUMULATORS; k++) top = LARGER(top, s[k]);
    return top;
}

#endif
