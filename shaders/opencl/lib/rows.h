// Rows of a tensor of any strides: `rows` lines along one axis, numbered over up to three further axes of lengths
// (.., rows1, rows2). ROW_OF(name, row) is where a row of operand `name` begins. LANES work-items, which are 1 or a whole group
// of GROUP, take `rows_each` rows one after the other, WIDTH elements at a time where the axis is contiguous (WIDTH > 1), else
// element by element, `name_step` apart.
//
// With HELD > 0 every work-item keeps its HELD vectors of a row in registers, so that the row is read once; unless FULL, the last of
// them may lie past the end. With HELD 0 every pass over the row reads it again, which on CPUs finds it in the cache.
//
//   HELD_ROW(x)            declares the registers of operand x, HOLD(x, at) reads a row into them; nothing without HELD
//   FOR_VECTORS body       for each vector of the work-item; in the body, i is its number in the row and k < CHAINS tells
//                          which of several independent sums it goes to
//   FOR_TAIL body          for each element i after the last whole vector
//   VALUE(x, at)           vector i of operand x; KEEP(x, v) replaces it where it is held
//   WRITE(out, v, at, i)   stores a vector
//   NEXT_ROW(x, at)        on CPUs, asks for vector i of the next row, as every kernel does once for each operand;
//   NEXT_RESULT(out, at)   the same for a row to be written
//   SHARED_ROWS            says the size of a group to the compiler, which then gives each work-item so many registers that
//                          a group of them fits a compute unit
//   CHAIN(s, v)            declares the sums s[CHAINS], all v; CHAIN_SUM(s) and CHAIN_MAX(s) join them and their lanes to one REAL

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
#ifndef HELD
#define HELD 0
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

// Elements, where rows are longer than what a cache should hold of the next one.
#define FARTHEST 16384
#if AHEAD && WIDTH > 1
#define NEXT_ROW(name, at) READ_SOON(name + (at) + min(name##2, (long)FARTHEST) + i * WIDTH)
#define NEXT_RESULT(name, at) WRITE_SOON(name + (at) + min(name##2, (long)FARTHEST) + i * WIDTH)
#else
#define NEXT_ROW(name, at)
#define NEXT_RESULT(name, at)
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

#if HELD
#define SHARED_ROWS __attribute__((reqd_work_group_size(GROUP, 1, 1)))
#define CHAINS (HELD < 4 ? HELD : 4)
#define FOR_VECTORS \
    _Pragma("unroll") for (uint held = 0, k = 0, i = GROUP_ME; held < HELD; held++, k = held % CHAINS, i += LANES) \
        if (FULL || held + 1 < HELD || i < WHOLE)
#define HELD_ROW(name) V name##_held[HELD];
#define HOLD(name, at) FOR_VECTORS name##_held[held] = READ(name, at, i);
#define VALUE(name, at) name##_held[held]
#define KEEP(name, value) name##_held[held] = value;
#else
#define SHARED_ROWS
// Several sums at a time: one alone would wait for each addition to finish.
#define CHAINS 4
#define FOR_VECTORS \
    for (uint begin = GROUP_ME; begin < WHOLE; begin += CHAINS * LANES) \
        _Pragma("unroll") for (uint k = 0, i = begin; k < CHAINS; k++, i += LANES) if (i < WHOLE)
#define HELD_ROW(name)
#define HOLD(name, at)
#define VALUE(name, at) READ(name, at, i)
#define KEEP(name, value)
#endif
// The last, partial vector of a row, element by element. Its work-items are the first of the group.
#if HELD
#define FOR_TAIL for (uint i = 0; i < 0; i++)
#else
#define FOR_TAIL for (uint i = TAIL_BEGIN + GROUP_ME; i < length; i += LANES)
#endif

#define CHAIN(name, value) \
    V name[CHAINS]; \
    _Pragma("unroll") for (uint chain = 0; chain < CHAINS; chain++) name[chain] = (V)(value);
#define CHAIN_SUM(name) LANES_SUM(sum_of_chains(name))
#define CHAIN_MAX(name) LANES_MAX(largest_of_chains(name))

inline V sum_of_chains(const V *s) {
    V total = s[0];
    _Pragma("unroll") for (uint k = 1; k < CHAINS; k++) total += s[k];
    return total;
}

inline V largest_of_chains(const V *s) {
    V top = s[0];
    _Pragma("unroll") for (uint k = 1; k < CHAINS; k++) top = LARGER(top, s[k]);
    return top;
}

#endif
