// out[index[i], :] += source[i, :] in the order of i, for GPUs: without atomic additions of floats, so that results do not vary. An
// index out of range is skipped.
//
// `link` chains the positions that name one row, in whatever order they come. `add_chains` then has the group of each chain's first
// position add up the row in registers, when the chain is short enough to be put in order; the rows of longer chains are
// listed. `add_parts` takes these rows, a fixed part of all indices at a time, and `join_parts` adds their parts in order. The last two
// find out on the device how much there is to do, and deal it out to the groups that were launched.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef INDEX_DTYPE
#define INDEX_DTYPE int64
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef GROUP
#define GROUP 128
#endif
// Positions that are put in order, and indices that a work-item looks at in one turn.
#ifndef LONGEST
#define LONGEST 32
#endif
#ifndef LOOKS
#define LOOKS 8
#endif
// Neighbouring columns per work-item.
#ifndef WIDTH
#define WIDTH 1
#endif
#define ALIGNED 1
#include "lib/dtypes.h"
#include "lib/vectors.h"

#define END (-1)
#define TURN (GROUP * LOOKS)
// At most GROUP, as LOOKS is at most 32.
#define WORDS (TURN / 32)
// Loads under way at once.
#define BATCH 8

#if WIDTH == 1
#define READ(p) LOAD(DTYPE, p, 0)
#define WRITE(v, p) STORE(DTYPE, v, p, 0)
#else
#define READ(p) LOADV(DTYPE, p)
#define WRITE(v, p) STOREV(DTYPE, v, p)
#endif
#define TERM(i) READ(source + (long)(i) * source_row + (long)column * source_column)

// The terms at the `count` positions of `list`, in their order.
#define ADD_LISTED(sum, list, count) \
    { \
        int k = 0; \
        for (; k + BATCH <= (count); k += BATCH) { \
            VEC(COMPUTE(DTYPE)) terms[BATCH]; \
            _Pragma("unroll") for (int b = 0; b < BATCH; b++) terms[b] = TERM((list)[k + b]); \
            _Pragma("unroll") for (int b = 0; b < BATCH; b++) sum += terms[b]; \
        } \
        for (; k < (count); k++) sum += TERM((list)[k]); \
    }

__kernel void link(__global const STORAGE(INDEX_DTYPE) *index, const ulong index_offset, volatile __global int *heads,
                   __global int *nexts, const uint count, const ulong rows, const long index_step) {
    const uint i = get_global_id(0);
    if (i >= count) return;
    const long row = (long)index[(long)index_offset + (long)i * index_step];
    if (row < 0 || (ulong)row >= rows) return;
    nexts[i] = atomic_xchg(heads + row, (int)i);
}

// The first dimension of groups covers the columns. `longs` holds the number of long chains, then their rows.
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void add_chains(__global const STORAGE(INDEX_DTYPE) *index, const ulong index_offset,
                __global const STORAGE(DTYPE) *source, const ulong source_offset, __global STORAGE(DTYPE) *out,
                const ulong out_offset, __global const int *heads, __global const int *nexts, volatile __global int *longs,
                const uint count, const uint width, const ulong rows, const long index_step, const long source_row,
                const long source_column) {
    __local int chain[LONGEST];
    __local int length;
    const uint me = get_local_id(0);
    const uint mine = get_group_id(1);
    const long row = (long)index[(long)index_offset + (long)mine * index_step];
    if (row < 0 || (ulong)row >= rows || heads[row] != (int)mine) return;
    if (me == 0) {
        int found = 0;
        for (int i = mine; i != END && found <= LONGEST; i = nexts[i]) {
            int at = found++;
            if (at == LONGEST) break;
            for (; at > 0 && chain[at - 1] > i; at--) chain[at] = chain[at - 1];
            chain[at] = i;
        }
        length = found;
        if (found > LONGEST && get_group_id(0) == 0) longs[1 + atomic_inc(longs)] = (int)row;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint column = (get_group_id(0) * GROUP + me) * WIDTH;
    if (length > LONGEST || column >= width) return;
    source += source_offset;
    __global STORAGE(DTYPE) *target = out + out_offset + (ulong)row * width + column;
    VEC(REAL) sum = READ(target);
    ADD_LISTED(sum, chain, length)
    WRITE(sum, target);
}

// Part p of a row comes from the indices p * piece to (p + 1) * piece. The second dimension of groups deals out rows and parts.
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void add_parts(__global const STORAGE(INDEX_DTYPE) *index, const ulong index_offset,
               __global const STORAGE(DTYPE) *source, const ulong source_offset, __global REAL *partial,
               __global const int *longs, const uint count, const uint width, const uint parts, const uint piece,
               const long index_step, const long source_row, const long source_column) {
    __local uint matches[WORDS];
    __local int list[TURN];
    __local int starts[WORDS];
    __local int listed;
    const uint me = get_local_id(0);
    const uint column = (get_group_id(0) * GROUP + me) * WIDTH;
    index += index_offset;
    source += source_offset;
    const uint tasks = longs[0] * parts;
    for (uint task = get_group_id(1); task < tasks; task += get_num_groups(1)) {
        const uint part = task % parts;
        const long row = longs[1 + task / parts];
        const uint last = min((part + 1) * piece, count);
        VEC(REAL) sum = (VEC(REAL))(0);
        for (uint from = part * piece; from < last; from += TURN) {
            if (me < WORDS) matches[me] = 0;
            barrier(CLK_LOCAL_MEM_FENCE);
            for (uint k = 0; k < LOOKS; k++) {
                const uint bit = k * GROUP + me, i = from + bit;
                if (i < last && (long)index[(long)i * index_step] == row) atomic_or(matches + bit / 32, 1u << (bit % 32));
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            if (me < WORDS) {
                int before = 0;
                for (uint w = 0; w < WORDS; w++) before += w < me ? popcount(matches[w]) : 0;
                starts[me] = before;
                if (me == WORDS - 1) listed = before + popcount(matches[me]);
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            for (uint k = 0; k < LOOKS; k++) {
                const uint bit = k * GROUP + me, word = matches[bit / 32], mask = 1u << (bit % 32);
                if (word & mask) list[starts[bit / 32] + popcount(word & (mask - 1))] = from + bit;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            const int count_here = column < width ? listed : 0;
            ADD_LISTED(sum, list, count_here)
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        if (column < width) {
            __global REAL *to = partial + (ulong)task * width + column;
            for (uint j = 0; j < WIDTH; j++) to[j] = ((__private REAL *)&sum)[j];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void join_parts(__global STORAGE(DTYPE) *out, const ulong out_offset, __global const REAL *partial,
                __global const int *longs, const uint width, const uint parts) {
    const ulong size = (ulong)longs[0] * width;
    for (ulong item = get_global_id(0); item < size; item += get_global_size(0)) {
        const uint slot = item / width, column = item - (ulong)slot * width;
        __global STORAGE(DTYPE) *target = out + out_offset + (ulong)longs[1 + slot] * width + column;
        REAL sum = LOAD(DTYPE, target, 0);
        for (uint part = 0; part < parts; part++) sum += partial[((ulong)slot * parts + part) * width + column];
        STORE(DTYPE, sum, target, 0);
    }
}
