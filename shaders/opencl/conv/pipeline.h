// The strips of a tile in turn: the next ones are on their way while one is multiplied. The kernel that includes this has
//   RESTART          to begin with the first strip of the terms from `start` to `end`;
//   FETCH(from, s)   to bring the strip from term `from` on into stage s, or with registers, into registers of its own;
//   KEEP(s)          to put these into stage s.
// ADD_STRIPS then leaves the products of all strips in `sums`.

#ifndef POLYHAL_CONV_STRIPS
#define POLYHAL_CONV_STRIPS

#define STRIPS_AT(s) sums, left + (s)*LEFT_STRIP, right + (s)*RIGHT_STRIP

#if ASYNC_COPIES
#define EACH_STRIP(ADD_STRIP)                                     \
    RESTART                                                       \
    uint next = start;                                            \
    UNROLLED(s, STAGES - 1) {                                     \
        if (next < end) { FETCH(next, s) }                        \
        COPIES_COMMIT();                                          \
        next += DEPTH;                                            \
    }                                                             \
    uint stage = 0, vacant = STAGES - 1;                          \
    for (uint from = start; from < end; from += DEPTH) {          \
        COPIES_WAIT(STAGES - 2);                                  \
        barrier(CLK_LOCAL_MEM_FENCE);                             \
        if (next < end) { FETCH(next, vacant) }                   \
        COPIES_COMMIT();                                          \
        next += DEPTH;                                            \
        ADD_STRIP(stage)                                          \
        vacant = stage;                                           \
        stage = stage + 1 == STAGES ? 0 : stage + 1;              \
    }
#else
#define EACH_STRIP(ADD_STRIP)                                     \
    RESTART                                                       \
    FETCH(start, 0)                                               \
    KEEP(0)                                                       \
    barrier(CLK_LOCAL_MEM_FENCE);                                 \
    uint stage = 0;                                               \
    for (uint from = start; from < end; from += DEPTH) {          \
        const bool more = from + DEPTH < end;                     \
        if (more) { FETCH(from + DEPTH, stage ^ 1) }              \
        ADD_STRIP(stage)                                          \
        if (more) { KEEP(stage ^ 1) }                             \
        barrier(CLK_LOCAL_MEM_FENCE);                             \
        stage ^= 1;                                               \
    }
#endif

#define MULTIPLY_IN_REAL(s) multiply_strip(STRIPS_AT(s));
#define MULTIPLY_IN_PARTS(s) multiply_on_tensor_cores(STRIPS_AT(s));
#define MULTIPLY_EITHER(s)                                  \
    if (again) multiply_strip(STRIPS_AT(s));                \
    else multiply_on_tensor_cores(STRIPS_AT(s));

#if TENSOR_CORES && PARTS == 3
// Numbers next to infinity split into parts make NaN where float32 makes infinity, so that a tile with either is made again.
// One loop does both: with a second one the compiler takes so many registers that fewer groups run at once.
#define ADD_STRIPS                                                                                               \
    __local int lost;                                                                                            \
    if (me == 0) lost = 0;                                                                                       \
    for (uint again = 0; again < 2; again++) {                                                                   \
        CLEAR_SUMS                                                                                               \
        EACH_STRIP(MULTIPLY_EITHER)                                                                              \
        float check = 0;                                                                                         \
        UNROLLED(i, 2 * ROW_BLOCKS) UNROLLED(j, 2 * COLUMN_BLOCKS) UNROLLED(e, 8) check += sums[i][j][e] * 0.0f; \
        if (check != 0.0f) lost = 1;                                                                             \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                            \
        if (!lost) break;                                                                                        \
    }
#elif TENSOR_CORES
#define ADD_STRIPS CLEAR_SUMS EACH_STRIP(MULTIPLY_IN_PARTS)
#else
#define ADD_STRIPS CLEAR_SUMS EACH_STRIP(MULTIPLY_IN_REAL)
#endif

// Stores the sums: to `partial`, the group's own matrix (m, n), or with PLACES to `out`. OUT_LANES is 4 where four columns
// from a multiple of 4 on exist together and lie side by side.
#if SPLIT
#define PUT_ROW(row) const ulong row_place = (ulong)(row)*n;
#define PUT_COLUMN(column) const ulong column_place = column;
#define PUT_EXISTS 1
#define PUT(value, at) partial[at] = value
#define PUT_QUAD(values, at) *(__global Quad *)(partial + (at)) = values
#else
#define PUT_ROW(row) PLACE_ROW(row)
#define PUT_COLUMN(column) PLACE_COLUMN(column)
#define PUT_EXISTS PLACE_EXISTS
#define PUT(value, at) STORE(OUT_DTYPE, value, out, at)
#define PUT_QUAD(values, at) STORE_QUAD(OUT_DTYPE, values, out, at)
#endif
#if BIAS && !SPLIT
#define BIAS_OF(row) LOAD(DTYPE, bias, bias_offset + group * m + (row))
#else
#define BIAS_OF(row) 0
#endif
#define STORE_QUAD_float32(v, p, i) (*(__global float4 *)((p) + (i)) = (v))
#define STORE_QUAD_float64(v, p, i) (*(__global double4 *)((p) + (i)) = (v))
#define STORE_QUAD_float16(v, p, i) vstore_half4_rte(v, 0, (p) + (i))
#define STORE_QUAD_bfloat16(v, p, i) \
    vstore4((ushort4)(bfloat16_of_float((v).s0), bfloat16_of_float((v).s1), bfloat16_of_float((v).s2), \
                      bfloat16_of_float((v).s3)), 0, (p) + (i))
#define STORE_QUAD(D, v, p, i) CONCAT(STORE_QUAD_, D)(v, p, i)

#if OUT_LANES == 4
#define PUT_SUMS                                                                                                   \
    UNROLLED(c, MY_COLUMNS / 4) {                                                                                  \
        const uint column = first_column + COLUMN_OF(4 * c);                                                       \
        if (column >= n) continue;                                                                                 \
        PUT_COLUMN(column)                                                                                         \
        UNROLLED(r, MY_ROWS) {                                                                                     \
            const uint row = first_row + ROW_OF(r);                                                                \
            if (row >= m) continue;                                                                                \
            PUT_ROW(row)                                                                                           \
            const Quad values = {SUM(r, 4 * c), SUM(r, 4 * c + 1), SUM(r, 4 * c + 2), SUM(r, 4 * c + 3)};          \
            PUT_QUAD(values + (REAL)BIAS_OF(row), row_place + column_place);                                       \
        }                                                                                                          \
    }
#else
#define PUT_SUMS                                                                                    \
    UNROLLED(c, MY_COLUMNS) {                                                                       \
        const uint column = first_column + COLUMN_OF(c);                                            \
        if (column >= n) continue;                                                                  \
        PUT_COLUMN(column)                                                                          \
        UNROLLED(r, MY_ROWS) {                                                                      \
            const uint row = first_row + ROW_OF(r);                                                 \
            if (row >= m) continue;                                                                 \
            PUT_ROW(row)                                                                            \
            if (PUT_EXISTS) PUT(SUM(r, c) + BIAS_OF(row), row_place + column_place);                \
        }                                                                                           \
    }
#endif

#endif
