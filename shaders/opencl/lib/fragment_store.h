// Epilogues and stores for the accumulators of tensor cores. Four neighbouring work-items hold a row in groups of eight
// columns, each work-item two neighbouring columns of every group. Four groups are a quad.
//
// FINISH_ROW(to, row, column, groups, FIRST, SECOND) applies the epilogue to `groups` groups of a row and stores them.
// FIRST(j) and SECOND(j) are this work-item's accumulators of group j, stored to to[8 * j] and to[8 * j + 1]; `column` is
// the position of the first one, and i0, i1, i2 the matrix of the batch. TARGET is the type of `to`: OUT_DTYPE, or float
// for the partial results of SPLIT_K. All work-items of a warp must take part, also those whose row is outside the matrix.
//
// FETCH_ROWS and FINISH_ROWS do the same for several rows, with the first loads of the epilogue's tensors issued by FETCH_ROWS,
// for instance before the sums exist. ROW(r) is the position of row r, TO(r) the place of its first accumulator, and
// FIRST and SECOND may use the variable nth_row.
//
// With PAIRS, rows have an even length, and pairs of neighbours are stored at once, to aligned addresses. With WIDTH 8, rows of
// 16-bit results consist of whole groups; the four work-items transpose four groups, and each stores a whole one: stores of two
// elements fill no sector of the second-level cache and take several times as long per byte. The epilogue is then applied to the
// eight elements of a work-item at once: one warp per scheduler stores results, and hides latency by independent instructions.

#ifndef POLYHAL_FRAGMENT_STORE
#define POLYHAL_FRAGMENT_STORE

#ifndef REAL
#define REAL float
#endif
#ifndef WIDTH
#define WIDTH 2
#endif
// Quads per row if there are fewer than four, else 4.
#ifndef ROW_QUADS
#define ROW_QUADS 4
#endif
#define ALIGNED 0
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "lib/epilogue.h"

#if SPLIT_K
#define TARGET float
#define STORE_ONE(to, value, at) ((to)[at] = (value))
#define STORE_TWO(to, first, second, at) store_two_float32(first, second, (to) + (at))
#else
#define TARGET STORAGE(OUT_DTYPE)
#define STORE_ONE(to, value, at) STORE(OUT_DTYPE, value, to, at)
#define STORE_TWO(to, first, second, at) CONCAT(store_two_, OUT_DTYPE)(first, second, (to) + (at))
#endif

static inline void store_two_float32(float first, float second, __global float *to) {
    *(__global float2 *)to = (float2)(first, second);
}
static inline void store_two_float16(float first, float second, __global half *to) {
    vstorea_half2_rte((float2)(first, second), 0, to);
}
static inline void store_two_bfloat16(float first, float second, __global ushort *to) {
    *(__global ushort2 *)to = (ushort2)(bfloat16_of_float(first), bfloat16_of_float(second));
}

static inline float2 load_two_float32(__global const float *from) { return *(__global const float2 *)from; }
static inline float2 load_two_float16(__global const half *from) { return vloada_half2(0, from); }
static inline float2 load_two_bfloat16(__global const ushort *from) {
    const uint word = *(__global const uint *)from;
    return (float2)(as_float(word << 16), as_float(word & 0xffff0000));
}

// Brings a part of a row of an epilogue's tensor to the second-level cache, by the four work-items that will load it.
#define CACHE_LINE 128
#if TENSOR_CORES
#define PREFETCH_LINE(D, line, row, column, columns)                                                            \
    if ((row) < m)                                                                                              \
        for (uint at = get_local_id(0) % 4 * (uint)(CACHE_LINE / sizeof(STORAGE(D))); at < min(columns, n - (column)); \
             at += 4 * (uint)(CACHE_LINE / sizeof(STORAGE(D))))                                                 \
            asm volatile("prefetch.global.L2 [%0];" ::"l"((ulong)(size_t)((line) + (column) + at)));
#else
#define PREFETCH_LINE(D, line, row, column, columns)
#endif

// Tensors of the epilogue are loaded QUADS_AHEAD quads before they are used, so that several loads are in flight.
// Operand `name` with dtype D has a slot for each such quad. Its neighbours are broadcast (BROADCAST), contiguous
// (CONTIGUOUS) or strided (STRIDED), or contiguous in aligned pairs (PAIR) or aligned groups (WHOLE).
#if EPILOGUE_TENSORS == 0
#define QUADS_AHEAD 0
#elif EPILOGUE_TENSORS > 2 || ROW_QUADS == 1
#define QUADS_AHEAD 1
#elif EPILOGUE_TENSORS == 2 || ROW_QUADS == 2
#define QUADS_AHEAD 2
#else
#define QUADS_AHEAD 4
#endif
#define PAIR_OF(D) CONCAT(COMPUTE(D), 2)
#define DECLARE_BROADCAST(D, name) PAIR_OF(D) name##_fetched[QUADS_AHEAD][4];
#define DECLARE_CONTIGUOUS DECLARE_BROADCAST
#define DECLARE_STRIDED DECLARE_BROADCAST
#define DECLARE_PAIR DECLARE_BROADCAST
#define FETCH_BROADCAST(D, name, slot, line, row, column) FETCH_EACH(D, name, slot, row, column, LOAD(D, line, 0))
#define FETCH_STRIDED(D, name, slot, line, row, column)           \
    FETCH_EACH(D, name, slot, row, column,                        \
               ((float2)(LOAD(D, line, (long)at * name##_column), \
                         LOAD(D, line, (long)min(at + 1, n - 1) * name##_column))))
#define FETCH_CONTIGUOUS FETCH_STRIDED
#define FETCH_PAIR(D, name, slot, line, row, column) \
    FETCH_EACH(D, name, slot, row, column, CONCAT(load_two_, D)(line + at))
#define FETCH_EACH(D, name, slot, row, column, value)                                \
    _Pragma("unroll") for (uint g = 0; g < 4; g++) {                                 \
        const uint at = (column) + 8 * g;                                            \
        name##_fetched[slot][g] = (PAIR_OF(D))(0);                                   \
        if ((row) < m && at < n) name##_fetched[slot][g] = (PAIR_OF(D))(value);      \
    }
#define TRANSPOSE_BROADCAST(name, slot)
#define TRANSPOSE_CONTIGUOUS(name, slot)
#define TRANSPOSE_STRIDED(name, slot)
#define TRANSPOSE_PAIR(name, slot)
#if WIDTH == 8
#define USE_BROADCAST(D, name, slot, g)                                                                  \
    const VEC(COMPUTE(D)) name = (VEC(COMPUTE(D)))(name##_fetched[slot][0], name##_fetched[slot][1],      \
                                                   name##_fetched[slot][2], name##_fetched[slot][3]);
#else
#define USE_BROADCAST(D, name, slot, g) const VEC(COMPUTE(D)) name = name##_fetched[slot][g];
#endif
#define USE_CONTIGUOUS USE_BROADCAST
#define USE_STRIDED USE_BROADCAST
#define USE_PAIR USE_BROADCAST

#if WIDTH == 8

static inline uint packed_float16(float low, float high) {
    uint word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

static inline uint packed_bfloat16(float low, float high) {
    uint word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

static inline float widened_half(ushort bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
static inline float2 unpacked_float16(uint word) {
    return (float2)(widened_half((ushort)word), widened_half((ushort)(word >> 16)));
}

static inline float2 unpacked_bfloat16(uint word) {
    return (float2)(as_float(word << 16), as_float(word & 0xffff0000));
}

static inline uint shuffle_word(uint word, uint distance) {
    uint other;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(other) : "r"(word), "r"(distance));
    return other;
}

// Exchanges words with the lane at `distance`: the y of the lower lane is swapped with the x of the upper lane.
#define EXCHANGE_WORDS(x, y, distance)                                \
    {                                                                 \
        const bool upper = get_local_id(0) & (distance);              \
        const uint other = shuffle_word(upper ? (x) : (y), distance); \
        x = upper ? other : (x);                                      \
        y = upper ? (y) : other;                                      \
    }

// Transposes 4 x 4 words over four lanes: word j of lane i becomes word i of lane j.
static inline uint4 transpose_quad(uint4 words) {
    EXCHANGE_WORDS(words.s0, words.s1, 1)
    EXCHANGE_WORDS(words.s2, words.s3, 1)
    EXCHANGE_WORDS(words.s0, words.s2, 2)
    EXCHANGE_WORDS(words.s1, words.s3, 2)
    return words;
}

// A whole group is loaded as it is stored: by one of the four work-items, which then transpose.
#define DECLARE_WHOLE(D, name) uint4 name##_fetched[QUADS_AHEAD];
#define FETCH_WHOLE(D, name, slot, line, row, column)                                         \
    {                                                                                         \
        const uint at = (column) + 6 * (get_local_id(0) % 4);                                 \
        name##_fetched[slot] = (uint4)(0);                                                    \
        if ((row) < m && at < n) name##_fetched[slot] = *(__global const uint4 *)(line + at); \
    }
#define TRANSPOSE_WHOLE(name, slot) name##_fetched[slot] = transpose_quad(name##_fetched[slot]);
#define PAIR_OF_WORD(D, word) CONCAT(unpacked_, D)(word)
#define USE_WHOLE(D, name, slot, g)                                                                         \
    const VEC(COMPUTE(D)) name = (VEC(COMPUTE(D)))(                                                         \
        PAIR_OF_WORD(D, name##_fetched[slot].s0), PAIR_OF_WORD(D, name##_fetched[slot].s1),                         \
        PAIR_OF_WORD(D, name##_fetched[slot].s2), PAIR_OF_WORD(D, name##_fetched[slot].s3));

#define WORD_OF_PAIR(low, high) CONCAT(packed_, OUT_DTYPE)(low, high)
#define STORE_QUAD(to, row, column, first, slot, FIRST, SECOND)                                             \
    {                                                                                                       \
        EPILOGUE_TRANSPOSE(slot)                                                                            \
        VEC(float) sum = (VEC(float))(FIRST(first), SECOND(first), FIRST((first) + 1), SECOND((first) + 1), \
                                      FIRST((first) + 2), SECOND((first) + 2), FIRST((first) + 3), SECOND((first) + 3)); \
        EPILOGUE_FINISH(sum, slot, 0)                                                                       \
        const uint4 words = transpose_quad((uint4)(WORD_OF_PAIR(sum.s0, sum.s1), WORD_OF_PAIR(sum.s2, sum.s3),          \
                                                   WORD_OF_PAIR(sum.s4, sum.s5), WORD_OF_PAIR(sum.s6, sum.s7)));        \
        const uint lane = get_local_id(0) % 4;                                                              \
        if ((row) < m && (column) + 6 * lane + 8 * (first) < n)                                             \
            *(__global uint4 *)((to) + 6 * lane + 8 * (first)) = words;                                     \
    }

#else

#define DECLARE_WHOLE DECLARE_PAIR
#define FETCH_WHOLE FETCH_PAIR
#define TRANSPOSE_WHOLE TRANSPOSE_PAIR
#define USE_WHOLE USE_PAIR

#define STORE_QUAD(to, row, column, first, slot, FIRST, SECOND)             \
    _Pragma("unroll") for (uint g = 0; g < 4; g++) {                        \
        const uint at = 8 * ((first) + g);                                  \
        if ((row) < m && (column) + at < n) {                               \
            float2 sum = (float2)(FIRST((first) + g), SECOND((first) + g)); \
            EPILOGUE_FINISH(sum, slot, g)                                   \
            if (PAIRS) {                                                    \
                STORE_TWO(to, sum.s0, sum.s1, at);                          \
            } else {                                                        \
                STORE_ONE(to, sum.s0, at);                                  \
                if ((column) + at + 1 < n) STORE_ONE(to, sum.s1, at + 1);   \
            }                                                               \
        }                                                                   \
    }

#endif

#define FETCH_STEP(step, ROW, column, groups)                                                                      \
    EPILOGUE_FETCH((step) % QUADS_AHEAD, ROW((step) / ((groups) / 4)), (column) + 32 * ((step) % ((groups) / 4)), \
                   i0, i1, i2)
#define FETCH_ROWS(ROW, column, groups)                                 \
    EPILOGUE_DECLARE                                                    \
    _Pragma("unroll") for (uint step = 0; step < QUADS_AHEAD; step++) { \
        FETCH_STEP(step, ROW, column, groups)                           \
    }
#define FINISH_ROWS(rows, TO, ROW, column, groups, FIRST, SECOND)                                   \
    _Pragma("unroll") for (uint nth_row = 0; nth_row < (rows); nth_row++) {                         \
        __global TARGET *const row_start = TO(nth_row);                                             \
        const uint row_number = ROW(nth_row);                                                       \
        _Pragma("unroll") for (uint quad = 0; quad < (groups) / 4; quad++) {                        \
            const uint step = nth_row * ((groups) / 4) + quad;                                      \
            STORE_QUAD(row_start, row_number, column, 4 * quad, step % QUADS_AHEAD, FIRST, SECOND)  \
            if (step + QUADS_AHEAD < (rows) * ((groups) / 4)) {                                     \
                FETCH_STEP(step + QUADS_AHEAD, ROW, column, groups)                                 \
            }                                                                                       \
        }                                                                                           \
    }

#define FINISH_ROW(to, row, column, groups, FIRST, SECOND)                         \
    {                                                                              \
        __global TARGET *const only_start = to;                                    \
        const uint only_row = row;                                                 \
        FETCH_ROWS(ONLY_ROW, column, groups)                                       \
        FINISH_ROWS(1, ONLY_START, ONLY_ROW, column, groups, FIRST, SECOND)        \
    }
#define ONLY_ROW(r) only_row
#define ONLY_START(r) only_start

#endif
