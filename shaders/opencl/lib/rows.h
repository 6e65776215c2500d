// Kernels over rows: `rows` lines along one axis of tensors of any strides, numbered over up to three outer axes of lengths
// (.., outer1, outer2). LANES work-items, 1 or a whole group of GROUP, share a row and process `rows_each` consecutive
// rows: WIDTH elements at a time where the axis is contiguous (WIDTH > 1), else element by element with stride
// `name_step`.
//
// With ROW_VECTORS > 0 a row is read once: each work-item keeps its ROW_VECTORS vectors of it in registers; unless FULL, the
// last of them may be past the end. With STAGED_VECTORS > 0 a row is copied to local memory, where it has as many whole vectors of
// 16 bytes; each work-item reads only those that it copied. Otherwise each pass reads the row again, on CPUs from the cache.
//
// A kernel takes the numbers as one struct by value, `geometry`, with the members STRIDE_MEMBERS(x) of each operand, then
// ROW_MEMBERS. Its body begins with DECLARE_ROWS and DECLARE_STRIDES(x), which make constants of them. Then:
//
//   ROW_OF(x, row)                  index of the first element of a row of operand x
//   DECLARE_ROW(x)                  registers or local memory for a row of x, filled by LOAD_ROW(x, at); else nothing
//   FOR_VECTORS body                for each vector of the work-item; in the body, i is its index in the row, and k < ACCUMULATORS
//                                   selects one of several independent sums
//   FOR_TAIL body                   for each element i after the last whole vector
//   ROW_VALUE(x, at)                vector i of x; SET_ROW_VALUE(x, v) replaces it if rows are in registers
//   WRITE(out, v, at, i)            stores a vector
//   ..._AS(D, ...)                  LOAD_ROW, ROW_VALUE and WRITE for an operand with elements of dtype D
//   PREFETCH_NEXT_ROW(x, at)        on CPUs, prefetches vector i of the next row; once per operand and row
//   PREFETCH_NEXT_RESULT(out, at)   the same for a row to be written
//   DECLARE_ACCUMULATORS(s, v)      the sums s[ACCUMULATORS], all v; SUM_ACCUMULATORS(s) and MAX_ACCUMULATORS(s) reduce them to a REAL
//
// REQUIRED_GROUP_SIZE tells the compiler the size of a group, so that it uses no more registers than a group of them has.

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
#ifndef STAGED_VECTORS
#define STAGED_VECTORS 0
#endif
#ifndef FULL
#define FULL 0
#endif
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "lib/group_reduce.h"
#if STAGED_VECTORS
#include "lib/async_copy.h"
#endif

typedef VEC(REAL) V;
#include "lib/lane_reduce.h"

#define OPERAND(name) __global const STORAGE(DTYPE) *name, const ulong name##_offset
#define RESULT(name) __global STORAGE(DTYPE) *name, const ulong name##_offset
#define STRIDE_MEMBERS(name) long name##_outer0, name##_outer1, name##_outer2, name##_step
#define ROW_MEMBERS \
    ulong rows;     \
    uint length, rows_each, outer1, outer2
#define DECLARE_ROWS                                                                                                  \
    const ulong rows = geometry.rows;                                                                                 \
    const uint length = geometry.length, rows_each = geometry.rows_each;                                              \
    const uint outer1 = geometry.outer1, outer2 = geometry.outer2
#define DECLARE_STRIDES(name)                                                                      \
    const long name##_outer0 = geometry.name##_outer0, name##_outer1 = geometry.name##_outer1,     \
               name##_outer2 = geometry.name##_outer2, name##_step = geometry.name##_step
#define ROW_OF(name, row)                                                        \
    ((long)name##_offset + (long)((row) / outer2 / outer1) * name##_outer0 +     \
     (long)((row) / outer2 % outer1) * name##_outer1 + (long)((row) % outer2) * name##_outer2)
#if LANES == GROUP
#define FIRST_ROW ((ulong)get_group_id(0) * rows_each)
#else
#define FIRST_ROW ((ulong)get_global_id(0) * rows_each)
#endif
#define FOR_ROWS for (ulong row = FIRST_ROW, last_row = min(row + rows_each, rows); row < last_row; row++)

// Elements: no more of the next row is prefetched, so that it fits in the cache.
#define MAX_PREFETCH_ROW 16384
#if PREFETCH_DISTANCE && WIDTH > 1
#define PREFETCH_NEXT_ROW(name, at) PREFETCH_READ(name + (at) + min(name##_outer2, (long)MAX_PREFETCH_ROW) + i * WIDTH)
#define PREFETCH_NEXT_RESULT(name, at) PREFETCH_WRITE(name + (at) + min(name##_outer2, (long)MAX_PREFETCH_ROW) + i * WIDTH)
#else
#define PREFETCH_NEXT_ROW(name, at)
#define PREFETCH_NEXT_RESULT(name, at)
#endif
#if WIDTH == 1
#define WHOLE length
#define READ_AS(D, name, at, i) LOAD(D, name, (at) + (long)(i) * name##_step)
#define WRITE_AS(D, name, value, at, i) STORE(D, value, name, (at) + (long)(i) * name##_step)
#define READ_SMALL(D, name, i) LOAD(D, name, name##_offset + (i))
#define TAIL_BEGIN length
#else
#define WHOLE (length / WIDTH)
#define READ_AS(D, name, at, i) LOADV(D, name + (at) + (i) * WIDTH)
#define WRITE_AS(D, name, value, at, i) STOREV(D, value, name + (at) + (i) * WIDTH)
#define READ_SMALL(D, name, i) LOADV(D, name + name##_offset + (i) * WIDTH)
#define TAIL_BEGIN (length / WIDTH * WIDTH)
#endif
#define READ(name, at, i) READ_AS(DTYPE, name, at, i)
#define WRITE(name, value, at, i) WRITE_AS(DTYPE, name, value, at, i)

#if ROW_VECTORS
#define REQUIRED_GROUP_SIZE __attribute__((reqd_work_group_size(GROUP, 1, 1)))
#define ACCUMULATORS (ROW_VECTORS < 4 ? ROW_VECTORS : 4)
#define FOR_VECTORS \
    _Pragma("unroll") for (uint slot = 0, k = 0, i = LANE_ID; slot < ROW_VECTORS; slot++, k = slot % ACCUMULATORS, i += LANES) \
        if (FULL || slot + 1 < ROW_VECTORS || i < WHOLE)
#define DECLARE_ROW(name) V name##_vectors[ROW_VECTORS];
#define LOAD_ROW_AS(D, name, at) FOR_VECTORS name##_vectors[slot] = READ_AS(D, name, at, i);
#define ROW_VALUE_AS(D, name, at) name##_vectors[slot]
#define SET_ROW_VALUE(name, value) name##_vectors[slot] = value;
#else
// Several independent sums hide the latency of additions.
#ifndef ACCUMULATORS
#define ACCUMULATORS 4
#endif
#define FOR_VECTORS \
    for (uint begin = LANE_ID; begin < WHOLE; begin += ACCUMULATORS * LANES) \
        _Pragma("unroll") for (uint k = 0, i = begin; k < ACCUMULATORS; k++, i += LANES) if (i < WHOLE)
#define SET_ROW_VALUE(name, value)
#if STAGED_VECTORS
#define REQUIRED_GROUP_SIZE __attribute__((reqd_work_group_size(GROUP, 1, 1)))
#define DECLARE_ROW(name) __local uint4 name##_row[STAGED_VECTORS];
#define LOAD_ROW_AS(D, name, at) \
    for (uint i = LANE_ID; i < STAGED_VECTORS; i += LANES) \
        COPY16((__local uint *)&name##_row[i], name + (at) + (long)i * WIDTH, true); \
    COPIES_COMMIT(); \
    COPIES_WAIT(0);
#define ROW_VALUE_AS(D, name, at) CONCAT(REALS_OF_, D)(name##_row[i])
#else
#define REQUIRED_GROUP_SIZE
#define DECLARE_ROW(name)
#define LOAD_ROW_AS(D, name, at)
#define ROW_VALUE_AS(D, name, at) READ_AS(D, name, at, i)
#endif
#endif
#if STAGED_VECTORS
// The elements of a vector of 16 bytes.
#define REALS_OF_float32(w) as_float4(w)
#define REALS_OF_float64(w) as_double2(w)
#if WIDTH == 8
#if PTX_BFLOAT16
#define REALS_OF_bfloat16(w) floats_of_words(w)
#else
#define REALS_OF_bfloat16(w) as_float8(convert_uint8(as_ushort8(w)) << 16)
#endif
#if QUIRK_PTX_HALF_CONVERSION
#define REALS_OF_float16(w) floats_of_halves(as_ushort8(w))
#else
static inline float8 reals_of_float16(ushort8 halves) { return vload_half8(0, (const half *)&halves); }
#define REALS_OF_float16(w) reals_of_float16(as_ushort8(w))
#endif
#endif
#endif
#define LOAD_ROW(name, at) LOAD_ROW_AS(DTYPE, name, at)
#define ROW_VALUE(name, at) ROW_VALUE_AS(DTYPE, name, at)
// The last, partial vector of a row, element by element, by the first work-items of the group.
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

static inline V sum_of_accumulators(const V *s) {
    V total = s[0];
    _Pragma("unroll") for (uint k = 1; k < ACCUMULATORS; k++) total += s[k];
    return total;
}

static inline V max_of_accumulators(const V *s) {
    V top = s[0];
    _Pragma("unroll") for (uint k = 1; k < ACCUMULATORS; k++) top = LARGER(top, s[k]);
    return top;
}

#endif
