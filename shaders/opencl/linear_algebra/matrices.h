// Batches of small matrices: a group of GROUP work-items has one matrix in local memory, in rows of PITCH elements.
//
// A kernel takes its numbers as one struct by value, `geometry`, with the members MATRIX_MEMBERS(x) of each strided operand, then
// BATCH_MEMBERS. Batches have up to three axes of lengths (.., batch1, batch2); results are contiguous.
//
//   MATRIX_OF(x, matrix)         index of the first element of a matrix of operand x
//   ELEMENT(x, at, i, j)         its element in row i and column j
//   FOR_OWN(i, begin, end)       the indices of a range that belong to the work-item
//   SYNC                         waits for the group, and makes its local memory visible

#ifndef POLYHAL_MATRICES
#define POLYHAL_MATRICES

#ifndef DTYPE
#define DTYPE float32
#endif
// Work-items of a group.
#ifndef GROUP
#define GROUP 32
#endif
// The largest number of rows or columns.
#ifndef SIZE
#define SIZE 16
#endif
#include "lib/dtypes.h"

#define REAL COMPUTE(DTYPE)
#if GROUP == 1
#define PITCH SIZE
#else
// An odd distance of rows keeps the rows of neighboring work-items in different banks.
#define PITCH (SIZE + 1)
#endif
#define TILE_ELEMENTS (SIZE * PITCH)

#define OPERAND(name) __global const STORAGE(DTYPE) *name, const ulong name##_offset
#define RESULT(D, name) __global STORAGE(D) *name, const ulong name##_offset
#define MATRIX_MEMBERS(name) long name##_batch[3], name##_row, name##_column
#define BATCH_MEMBERS uint batch1, batch2
#define MATRIX_OF(name, matrix)                                                                   \
    ((long)name##_offset + (long)((matrix) / geometry.batch2 / geometry.batch1) * geometry.name##_batch[0] + \
     (long)((matrix) / geometry.batch2 % geometry.batch1) * geometry.name##_batch[1] +            \
     (long)((matrix) % geometry.batch2) * geometry.name##_batch[2])
#define ELEMENT(name, at, i, j) \
    LOAD(DTYPE, name, (at) + (long)(i) * geometry.name##_row + (long)(j) * geometry.name##_column)

// 1: the group also shares a matrix in global memory.
#ifndef IN_GLOBAL
#define IN_GLOBAL 0
#endif
#if GROUP == 1
#define ITEM 0u
#define SYNC
#elif IN_GLOBAL
#define ITEM ((uint)get_local_id(0))
#define SYNC barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#else
#define ITEM ((uint)get_local_id(0))
#define SYNC barrier(CLK_LOCAL_MEM_FENCE)
#endif
#define FOR_OWN(i, begin, end) for (uint i = (begin) + ITEM; i < (end); i += GROUP)

// Subtracts a multiple of the elements [begin, end) of a row from another row: on processors in vectors.
#if GROUP == 1
#define SUBTRACT_MULTIPLE(to, from, factor, begin, end)                                                   \
    {                                                                                                     \
        uint at = (begin);                                                                                \
        for (; at + 8 <= (end); at += 8)                                                                  \
            vstore8(vload8(0, (to) + at) - (CONCAT(REAL, 8))(factor) * vload8(0, (from) + at), 0, (to) + at); \
        for (; at < (end); at++) (to)[at] -= (factor) * (from)[at];                                       \
    }
#else
#define SUBTRACT_MULTIPLE(to, from, factor, begin, end) \
    for (uint at = (begin); at < (end); at++) (to)[at] -= (factor) * (from)[at];
#endif

// Copies a matrix of `rows` x `columns` to local memory.
#define LOAD_TILE(tile, name, at, rows, columns)                                        \
    for (uint index = ITEM; index < (rows) * (columns); index += GROUP) {               \
        const uint i = index / (columns), j = index - i * (columns);                    \
        tile[i * PITCH + j] = ELEMENT(name, at, i, j);                                  \
    }

// Copies it to the contiguous results of a matrix.
#define STORE_TILE(tile, name, matrix, rows, columns)                                   \
    for (uint index = ITEM; index < (rows) * (columns); index += GROUP) {               \
        const uint i = index / (columns), j = index - i * (columns);                    \
        STORE(DTYPE, tile[i * PITCH + j], name, name##_offset + (matrix) * (rows) * (columns) + index); \
    }

#endif
