// out[index[i], :] += source[i, :] in the order of i, for GPUs: without floating-point atomics, so results are reproducible. An index
// out of range is skipped.
//
// link_rows builds a linked list per row of the indices that name it, in arbitrary order. In add_short_rows the group
// of each list's first index sorts the list and adds up the row in registers; rows with more than MAX_TERMS terms are
// appended to `long_rows` instead. add_long_rows sums those rows in splits, fixed ranges of the indices, and
// reduce_long_rows adds the partial sums in order. The last two read the number of long rows on the device and
// distribute them over the groups launched.

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
// Terms of a row that are sorted in local memory, at most.
#ifndef MAX_TERMS
#define MAX_TERMS 32
#endif
// Indices that a work-item compares between two barriers.
#ifndef INDICES_EACH
#define INDICES_EACH 8
#endif
// Neighbouring columns per work-item.
#ifndef WIDTH
#define WIDTH 1
#endif
#define ALIGNED 1
#include "lib/dtypes.h"
#include "lib/vectors.h"

#define END_OF_LIST (-1)
#define WINDOW (GROUP * INDICES_EACH)
// Words of a bit mask of the window; at most GROUP, because INDICES_EACH is at most 32.
#define MASK_WORDS (WINDOW / 32)
#define LOADS_IN_FLIGHT 8

#if WIDTH == 1
#define READ(p) LOAD(DTYPE, p, 0)
#define WRITE(v, p) STORE(DTYPE, v, p, 0)
#else
#define READ(p) LOADV(DTYPE, p)
#define WRITE(v, p) STOREV(DTYPE, v, p)
#endif
#define TERM(i) READ(source + (long)(i) * source_row + (long)column * source_column)

// Adds the terms at the first `n` indices of `list`, in their order.
#define ADD_TERMS(sum, list, n) \
    { \
        int k = 0; \
        for (; k + LOADS_IN_FLIGHT <= (n); k += LOADS_IN_FLIGHT) { \
            VEC(COMPUTE(DTYPE)) loaded[LOADS_IN_FLIGHT]; \
            _Pragma("unroll") for (int b = 0; b < LOADS_IN_FLIGHT; b++) loaded[b] = TERM((list)[k + b]); \
            _Pragma("unroll") for (int b = 0; b < LOADS_IN_FLIGHT; b++) sum += loaded[b]; \
        } \
        for (; k < (n); k++) sum += TERM((list)[k]); \
    }

// `first` is the first index of each row's list, or END_OF_LIST; `next` leads from index to index.
__kernel void link_rows(__global const STORAGE(INDEX_DTYPE) *index, const ulong index_offset, volatile __global int *first,
                        __global int *next, const uint count, const ulong rows, const long index_step) {
    const uint i = get_global_id(0);
    if (i >= count) return;
    const long row = (long)index[(long)index_offset + (long)i * index_step];
    if (row < 0 || (ulong)row >= rows) return;
    next[i] = atomic_xchg(first + row, (int)i);
}

// Groups are (columns, indices). `long_rows` holds a count, then the rows.
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void add_short_rows(__global const STORAGE(INDEX_DTYPE) *index, const ulong index_offset,
                    __global const STORAGE(DTYPE) *source, const ulong source_offset, __global STORAGE(DTYPE) *out,
                    const ulong out_offset, __global const int *first, __global const int *next,
                    volatile __global int *long_rows, const uint width, const ulong rows, const long index_step,
                    const long source_row, const long source_column) {
    __local int list[MAX_TERMS];
    __local int terms;
    const uint lane = get_local_id(0);
    const uint head = get_group_id(1);
    const long row = (long)index[(long)index_offset + (long)head * index_step];
    if (row < 0 || (ulong)row >= rows || first[row] != (int)head) return;
    if (lane == 0) {
        int n = 0;
        for (int i = head; i != END_OF_LIST && n <= MAX_TERMS; i = next[i]) {
            int at = n++;
            if (at == MAX_TERMS) break;
            for (; at > 0 && list[at - 1] > i; at--) list[at] = list[at - 1];
            list[at] = i;
        }
        terms = n;
        if (n > MAX_TERMS && get_group_id(0) == 0) long_rows[1 + atomic_inc(long_rows)] = (int)row;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint column = (get_group_id(0) * GROUP + lane) * WIDTH;
    if (terms > MAX_TERMS || column >= width) return;
    source += source_offset;
    __global STORAGE(DTYPE) *target = out + out_offset + (ulong)row * width + column;
    VEC(REAL) sum = READ(target);
    ADD_TERMS(sum, list, terms)
    WRITE(sum, target);
}

// Groups are (columns, workers), and a worker takes one (long row, split) after another. Split s of a row comes from the indices
// s * split_length to (s + 1) * split_length.
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void add_long_rows(__global const STORAGE(INDEX_DTYPE) *index, const ulong index_offset,
                   __global const STORAGE(DTYPE) *source, const ulong source_offset, __global REAL *partial,
                   __global const int *long_rows, const uint count, const uint width, const uint splits,
                   const uint split_length, const long index_step, const long source_row, const long source_column) {
    __local uint mask[MASK_WORDS];
    __local int list[WINDOW];
    __local int starts[MASK_WORDS];
    __local int matches;
    const uint lane = get_local_id(0);
    const uint column = (get_group_id(0) * GROUP + lane) * WIDTH;
    index += index_offset;
    source += source_offset;
    const uint tasks = long_rows[0] * splits;
    for (uint task = get_group_id(1); task < tasks; task += get_num_groups(1)) {
        const uint split = task % splits;
        const long row = long_rows[1 + task / splits];
        const uint last = min((split + 1) * split_length, count);
        VEC(REAL) sum = (VEC(REAL))(0);
        for (uint from = split * split_length; from < last; from += WINDOW) {
            // A bit mask of the indices that name the row, then their list, in order.
            if (lane < MASK_WORDS) mask[lane] = 0;
            barrier(CLK_LOCAL_MEM_FENCE);
            for (uint k = 0; k < INDICES_EACH; k++) {
                const uint bit = k * GROUP + lane, i = from + bit;
                if (i < last && (long)index[(long)i * index_step] == row) atomic_or(mask + bit / 32, 1u << (bit % 32));
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            if (lane < MASK_WORDS) {
                int before = 0;
                for (uint w = 0; w < MASK_WORDS; w++) before += w < lane ? popcount(mask[w]) : 0;
                starts[lane] = before;
                if (lane == MASK_WORDS - 1) matches = before + popcount(mask[lane]);
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            for (uint k = 0; k < INDICES_EACH; k++) {
                const uint bit = k * GROUP + lane, word = mask[bit / 32], single = 1u << (bit % 32);
                if (word & single) list[starts[bit / 32] + popcount(word & (single - 1))] = from + bit;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            const int terms = column < width ? matches : 0;
            ADD_TERMS(sum, list, terms)
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
void reduce_long_rows(__global STORAGE(DTYPE) *out, const ulong out_offset, __global const REAL *partial,
                      __global const int *long_rows, const uint width, const uint splits) {
    const ulong size = (ulong)long_rows[0] * width;
    for (ulong item = get_global_id(0); item < size; item += get_global_size(0)) {
        const uint slot = item / width, column = item - (ulong)slot * width;
        __global STORAGE(DTYPE) *target = out + out_offset + (ulong)long_rows[1 + slot] * width + column;
        REAL sum = LOAD(DTYPE, target, 0);
        for (uint split = 0; split < splits; split++) sum += partial[((ulong)slot * splits + split) * width + column];
        STORE(DTYPE, sum, target, 0);
    }
}
