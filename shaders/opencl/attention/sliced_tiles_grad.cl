// Gradients of attention with large heads on a GPU without tensor cores: as attention/tiles_grad.cl, but local memory holds
// SLICE features of the rows and columns at a time, so that several groups share it. Products of rows are sums over slices;
// then the columns' slices are read once more, from the cache, and each slice yields its features of the gradients.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
// Features in local memory at once. They divide FEATURES and VALUES.
#ifndef SLICE
#define SLICE 32
#endif
#include "attention/grad_roles.h"
#include "attention/local_tile.h"

#define SLICES(features) ((features) / SLICE)
// The features of a slice, of `length` in all.
#define SLICE_LENGTH(slice, length) ((uint)clamp((int)(length) - (int)(slice) * SLICE, 0, SLICE))
// Copy a slice of rows `first` to `first` + count of an operand to local memory, with zeros for rows >= `limit` and
// features >= `length`. Where work-items have few registers, they count from the first row, in 32 bits.
#if ITEM_ROWS == 1
#define LOAD_SLICE(memory, name, slice, first, count, limit, length)                                                   \
    {                                                                                                                  \
        const uint row0_ = get_local_id(0) / ROW_VECTORS(SLICE), column_ = get_local_id(0) % ROW_VECTORS(SLICE) * 4;   \
        __global const STORAGE(DTYPE) *const from_ =                                                                   \
            name + (long)(first)*name##_row + (long)((slice) * SLICE) * name##_column;                                 \
        const int step_ = ROW_STEP(SLICE) * (int)name##_row;                                                           \
        int at_ = (int)row0_ * (int)name##_row + (int)column_ * (int)name##_column;                                    \
        _Pragma("unroll") for (uint i_ = 0; i_ < ((count) + ROW_STEP(SLICE) - 1) / ROW_STEP(SLICE); i_++) {            \
            const uint row_ = row0_ + i_ * ROW_STEP(SLICE);                                                            \
            if (((count) % ROW_STEP(SLICE) == 0 || row_ < (count)) && HAS_ROW(SLICE)) {                                \
                COPY_VEC4(DTYPE, memory, row_ * PITCH(SLICE) + column_, name, (from_ + at_), column_,                  \
                          (first) + row_ < (limit), SLICE_LENGTH(slice, length));                                      \
            }                                                                                                          \
            at_ += step_;                                                                                              \
        }                                                                                                              \
    }
#else
#define LOAD_SLICE(memory, name, slice, first, count, limit, length)                                     \
    {                                                                                                    \
        __global const STORAGE(DTYPE) *const whole_ = name;                                              \
        __global const STORAGE(DTYPE) *name = whole_ + (long)((slice) * SLICE) * name##_column;          \
        LOAD_ROWS(DTYPE, memory, SLICE, name, first, count, limit, SLICE_LENGTH(slice, length))          \
    }
#endif
#define STORE_SLICES(values, factor, name, limit, length, features)                                             \
    _Pragma("unroll") for (uint slice_ = 0; slice_ < SLICES(features); slice_++) {                              \
        STORE_ROWS(DTYPE, values[slice_], factor, name, first, limit, SLICE_LENGTH(slice_, length), SLICE)     \
        name += SLICE;                                                                                          \
    }

// sums[i][j] = product of a row of the group and a column, over all features.
#define MULTIPLY_SLICES(sums, row_name, column_name, features, length)                                               \
    CLEAR_PRODUCTS(sums)                                                                                             \
    _Pragma("unroll 1") for (uint slice_ = 0; slice_ < SLICES(features); slice_++) {                                 \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                \
        LOAD_SLICE(left, row_name, slice_, first, ROWS, ROW_COUNT, length)                                  \
        LOAD_SLICE(right, column_name, slice_, column, COLUMNS, COLUMN_COUNT, length)                       \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                \
        REAL products_[ITEM_ROWS][ITEM_COLUMNS];                                                                     \
        multiply_rows(left, right, SLICE, products_);                                                                \
        _Pragma("unroll") for (uint i_ = 0; i_ < ITEM_ROWS; i_++)                                                    \
            _Pragma("unroll") for (uint j_ = 0; j_ < ITEM_COLUMNS; j_++) sums[i_][j_] += products_[i_][j_];          \
    }
#define CLEAR_PRODUCTS(sums)                             \
    _Pragma("unroll") for (uint i_ = 0; i_ < ITEM_ROWS; i_++) \
        _Pragma("unroll") for (uint j_ = 0; j_ < ITEM_COLUMNS; j_++) sums[i_][j_] = 0;

// acc += weights times the columns, slice by slice. The weights reuse the local memory of the rows.
#define ACCUMULATE_SLICES(acc, weights, column_name, features, length)                               \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                    \
    store_weights(weights, left);                                                                    \
    _Pragma("unroll") for (uint slice_ = 0; slice_ < SLICES(features); slice_++) {                   \
        if (slice_) barrier(CLK_LOCAL_MEM_FENCE);                                                    \
        LOAD_SLICE(right, column_name, slice_, column, COLUMNS, COLUMN_COUNT, length)       \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                \
        ACCUMULATE_ROWS(acc[slice_], left, right, SLICE)                                             \
    }
#define CLEAR_SLICES(acc, features)                                                        \
    _Pragma("unroll") for (uint slice_ = 0; slice_ < SLICES(features); slice_++)           \
        _Pragma("unroll") for (uint i_ = 0; i_ < ITEM_ROWS; i_++)                          \
            _Pragma("unroll") for (uint j_ = 0; j_ < VECTORS(SLICE); j_++) acc[slice_][i_][j_] = (Vec4)(0);

// `statistics` are the numbers per query that attention/delta.cl computes.
__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(GROUP, 1, 1))) void attention_sliced_tiles_grad(
    OPERANDS, MASK_OPERAND __global const REAL *statistics, GRADIENTS(DTYPE), const REAL scale,
    const AttentionGeometry geometry) {
    __local REAL left[ROWS * (PITCH(SLICE) > WEIGHTS_PITCH ? PITCH(SLICE) : WEIGHTS_PITCH)] __attribute__((aligned(32)));
    __local REAL right[COLUMNS * PITCH(SLICE)] __attribute__((aligned(32)));
    DECLARE_LENGTHS;
    const uint x = LANE_X, y = LANE_Y;
    const uint head = get_group_id(1);
    HEAD_INDICES(head);
    SELECT_OPERANDS;
    statistics += (ulong)head * t * STATISTICS;
    const uint first = FIRST_ROW, begin = FIRST_COLUMN(first), end = END_COLUMN(first);
    const REAL score_scale = scale * SCORE_UNIT;
    Vec4 qk_acc[SLICES(FEATURES)][ITEM_ROWS][VECTORS(SLICE)];
    CLEAR_SLICES(qk_acc, FEATURES)
#if ROWS_ARE_KEYS
    Vec4 v_acc[SLICES(VALUES)][ITEM_ROWS][VECTORS(SLICE)];
    CLEAR_SLICES(v_acc, VALUES)
#endif
    for (uint column = begin; column < end; column += COLUMNS) {
        REAL p[ITEM_ROWS][ITEM_COLUMNS], ds[ITEM_ROWS][ITEM_COLUMNS];
        MULTIPLY_SLICES(p, ROW_QK, COLUMN_QK, FEATURES, d)
        MULTIPLY_SLICES(ds, ROW_VG, COLUMN_VG, VALUES, e)
#include "attention/pair_weights.h"
        ACCUMULATE_SLICES(qk_acc, ds, COLUMN_QK, FEATURES, d)
#if ROWS_ARE_KEYS
        ACCUMULATE_SLICES(v_acc, p, COLUMN_VG, VALUES, e)
#endif
    }
    SELECT_RESULT_EXPANDED(GRAD_QK);
    STORE_SLICES(qk_acc, scale, GRAD_QK, ROW_COUNT, d, FEATURES)
#if ROWS_ARE_KEYS
    SELECT_RESULT(dv);
    STORE_SLICES(v_acc, (REAL)1, dv, s, e, VALUES)
#endif
}
