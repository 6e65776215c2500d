// The software pipeline over the k-slices of a tile: the next slices are copied while one is multiplied. The including
// kernel defines
//   RESET               to begin again with the first slice of the k range `start` to `end`;
// LOAD_SLICE(from, s) to load the slice that begins at k index `from` into stage s, or without asynchronous copies into
// registers; STORE_SLICE(s) to store these registers to stage s. ACCUMULATE then leaves the products of all slices in
// `acc`.

#ifndef POLYHAL_CONV_PIPELINE
#define POLYHAL_CONV_PIPELINE

#define SLICE_AT(s) acc, left + (s)*LEFT_SLICE, right + (s)*RIGHT_SLICE

#if ASYNC_COPIES
#define FOR_EACH_SLICE(MULTIPLY_SLICE)                   \
    RESET                                                \
    uint next = start;                                   \
    UNROLLED(s, STAGES - 1) {                            \
        if (next < end) { LOAD_SLICE(next, s) }          \
        COPIES_COMMIT();                                 \
        next += DEPTH;                                   \
    }                                                    \
    uint stage = 0, free_stage = STAGES - 1;             \
    for (uint from = start; from < end; from += DEPTH) { \
        COPIES_WAIT(STAGES - 2);                         \
        barrier(CLK_LOCAL_MEM_FENCE);                    \
        if (next < end) { LOAD_SLICE(next, free_stage) } \
        COPIES_COMMIT();                                 \
        next += DEPTH;                                   \
        MULTIPLY_SLICE(stage)                            \
        free_stage = stage;                              \
        stage = stage + 1 == STAGES ? 0 : stage + 1;     \
    }
#else
#define FOR_EACH_SLICE(MULTIPLY_SLICE)                    \
    RESET                                                 \
    LOAD_SLICE(start, 0)                                  \
    STORE_SLICE(0)                                        \
    barrier(CLK_LOCAL_MEM_FENCE);                         \
    uint stage = 0;                                       \
    for (uint from = start; from < end; from += DEPTH) {  \
        const bool more = from + DEPTH < end;             \
        if (more) { LOAD_SLICE(from + DEPTH, stage ^ 1) } \
        MULTIPLY_SLICE(stage)                             \
        if (more) { STORE_SLICE(stage ^ 1) }              \
        barrier(CLK_LOCAL_MEM_FENCE);                     \
        stage ^= 1;                                       \
    }
#endif

#define MULTIPLY_REAL(s) multiply_slice(SLICE_AT(s));
#define MULTIPLY_HALF(s) multiply_on_tensor_cores(SLICE_AT(s));
#define MULTIPLY_EITHER(s)                  \
    if (retry) multiply_slice(SLICE_AT(s)); \
    else multiply_on_tensor_cores(SLICE_AT(s));

#if TENSOR_CORES && BF16_TERMS == 3
// Splitting the largest finite numbers into bf16 terms yields NaN where float32 yields infinity, so a tile with either
// is recomputed in REAL. One loop does both: a second one takes so many registers that fewer groups run at once.
#define ACCUMULATE                                                                                              \
    __local int not_finite;                                                                                     \
    if (me == 0) not_finite = 0;                                                                                \
    for (uint retry = 0; retry < 2; retry++) {                                                                  \
        CLEAR_ACC                                                                                               \
        FOR_EACH_SLICE(MULTIPLY_EITHER)                                                                         \
        uint largest = 0;                                                                                       \
        UNROLLED(i, 2 * ROW_BLOCKS) UNROLLED(j, 2 * COLUMN_BLOCKS) UNROLLED(e, 8)                               \
            largest = max(largest, as_uint(acc[i][j][e]) << 1);                                                 \
        if (largest >= EXPONENT(float) << 1) not_finite = 1;                                                    \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                           \
        if (!not_finite) break;                                                                                 \
    }
#elif TENSOR_CORES
#define ACCUMULATE CLEAR_ACC FOR_EACH_SLICE(MULTIPLY_HALF)
#else
#define ACCUMULATE CLEAR_ACC FOR_EACH_SLICE(MULTIPLY_REAL)
#endif

// STORE_ACC stores the results: with SPLIT to `partial`, the split's own matrix (m, n), else to `out` as conv/output_index.h
// says. OUT_LANES is 4 if every aligned group of four columns is complete and contiguous.
#if SPLIT
#define STORE_INDEX_ROW(row) const ulong row_offset = (ulong)(row)*n;
#define STORE_INDEX_COLUMN(column) const ulong column_offset = column;
#define STORE_EXISTS 1
#define STORE_ONE(value, at) partial[at] = value
#define STORE_FOUR(values, at) *(__global Quad *)(partial + (at)) = values
#else
#define STORE_INDEX_ROW(row) INDEX_ROW(row)
#define STORE_INDEX_COLUMN(column) INDEX_COLUMN(column)
#define STORE_EXISTS OUTPUT_EXISTS
#define STORE_ONE(value, at) STORE(OUT_DTYPE, value, out, at)
#define STORE_FOUR(values, at) STORE_QUAD(OUT_DTYPE, values, out, at)
#endif
#if BIAS && !SPLIT
#define BIAS_OF(row) LOAD(DTYPE, bias, bias_offset + group * m + (row))
#else
#define BIAS_OF(row) 0
#endif
#define STORE_QUAD_float32(v, p, i) (*(__global float4 *)((p) + (i)) = (v))
#define STORE_QUAD_float64(v, p, i) (*(__global double4 *)((p) + (i)) = (v))
#define STORE_QUAD_float16(v, p, i) vstore_half4_rte(v, 0, (p) + (i))
#define STORE_QUAD_bfloat16(v, p, i)                                                                   \
    vstore4((ushort4)(bfloat16_of_float((v).s0), bfloat16_of_float((v).s1), bfloat16_of_float((v).s2), \
                      bfloat16_of_float((v).s3)), 0, (p) + (i))
#define STORE_QUAD(D, v, p, i) CONCAT(STORE_QUAD_, D)(v, p, i)

#if OUT_LANES == 4
#define STORE_ACC                                                                                         \
    UNROLLED(c, ITEM_COLUMNS / 4) {                                                                       \
        const uint column = first_column + COLUMN_OF(4 * c);                                              \
        if (column >= n) continue;                                                                        \
        STORE_INDEX_COLUMN(column)                                                                        \
        UNROLLED(r, ITEM_ROWS) {                                                                          \
            const uint row = first_row + ROW_OF(r);                                                       \
            if (row >= m) continue;                                                                       \
            STORE_INDEX_ROW(row)                                                                          \
            const Quad values = {ACC(r, 4 * c), ACC(r, 4 * c + 1), ACC(r, 4 * c + 2), ACC(r, 4 * c + 3)}; \
            STORE_FOUR(values + (REAL)BIAS_OF(row), row_offset + column_offset);                          \
        }                                                                                                 \
    }
#else
#define STORE_ACC                                                                              \
    UNROLLED(c, ITEM_COLUMNS) {                                                                \
        const uint column = first_column + COLUMN_OF(c);                                       \
        if (column >= n) continue;                                                             \
        STORE_INDEX_COLUMN(column)                                                             \
        UNROLLED(r, ITEM_ROWS) {                                                               \
            const uint row = first_row + ROW_OF(r);                                            \
            if (row >= m) continue;                                                            \
            STORE_INDEX_ROW(row)                                                               \
            if (STORE_EXISTS) STORE_ONE(ACC(r, c) + BIAS_OF(row), row_offset + column_offset); \
        }                                                                                      \
    }
#endif

#endif
