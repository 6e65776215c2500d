// The tiles of attention/mma_tile.h for Hopper's wgmma (compute capability 9.0): the four warps of a warpgroup jointly
// multiply 64 rows, and the units read operands directly from local memory. Instructions that sm_90 lacks are written
// as PTX comments that begin with `//sm_90a `; backends/opencl_c/ptx.py turns them into instructions. With TENSOR_CORES 0
// everything is plain C (portable fallback).
//
// Layout in local memory: panels of 64 features, whose lines of 128 bytes begin at multiples of 1024 bytes. The 16-byte
// pieces of line l are swizzled: piece p is stored at p ^ (l % 8), so that no two banks collide.

#ifndef POLYHAL_ATTENTION_WGMMA_TILE
#define POLYHAL_ATTENTION_WGMMA_TILE

#define WARPGROUP 128
#define LINE 64
#define LINE_WORDS 32
// Words per row, including all panels.
#define PITCH(features) (((features) + LINE - 1) / LINE * LINE_WORDS)
// The word of an element of a block of `count` rows.
#define SWIZZLED_WORD(row, column, count) \
    (((column) / LINE * (count) + (row)) * LINE_WORDS + (((column) % LINE / 8) ^ ((row) % 8)) * 4 + (column) % 8 / 2)
#define WORD_AT(row, column, count, features) SWIZZLED_WORD(row, column, count)

#if TENSOR_CORES
#define SM_90A "//sm_90a "
#define FENCE_COPIES() asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
#define WGMMA_FENCE() asm volatile(SM_90A "wgmma.fence.sync.aligned;" ::: "memory")
#define WGMMA_COMMIT() asm volatile(SM_90A "wgmma.commit_group.sync.aligned;" ::: "memory")

// The matrix descriptor of a panel: address, distance to the next 64 rows, distance to the next eight lines, all in units
// of 16 bytes, and the 128-byte swizzle.
static inline ulong panel_descriptor(__local const uint *first, const uint next_rows) {
    const uint address = (uint)(size_t)first;
    return (ulong)((address & 0x3ffffu) >> 4) | (ulong)next_rows << 16 | (ulong)64 << 32 | (ulong)1 << 62;
}

#define OUT8(s, i)                                                                                                            \
    "+f"((s)[i]), "+f"((s)[i + 1]), "+f"((s)[i + 2]), "+f"((s)[i + 3]), "+f"((s)[i + 4]), "+f"((s)[i + 5]), "+f"((s)[i + 6]), \
        "+f"((s)[i + 7])
#define OUT32(s, i) OUT8(s, i), OUT8(s, i + 8), OUT8(s, i + 16), OUT8(s, i + 24)
#define OUT40(s, i) OUT32(s, i), OUT8(s, i + 32)
#define OUT48(s, i) OUT40(s, i), OUT8(s, i + 40)
#define OUT56(s, i) OUT48(s, i), OUT8(s, i + 48)
#define OUT64(s, i) OUT32(s, i), OUT32(s, i + 32)
#define OUT80(s, i) OUT64(s, i), OUT8(s, i + 64), OUT8(s, i + 72)
#define OUT96(s, i) OUT64(s, i), OUT32(s, i + 64)
#define OUT128(s, i) OUT64(s, i), OUT64(s, i + 64)
#define NAMES32                                                                                            \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
    "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES40 NAMES32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define NAMES48 NAMES40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define NAMES56 NAMES48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define NAMES64 NAMES56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES80 NAMES64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define NAMES96 NAMES80 ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define NAMES128 NAMES96 \
    ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115" \
    ", %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define WGMMA(N, TYPE, NAMES, MORE)                        \
    SM_90A "{ .reg .pred p; setp.ne.b32 p, %" MORE ", 0; " \
           "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" NAMES "}, "
// Wait until at most `waiting` products are in flight. The sums are operands, so that the compiler does not use them before.
#define WGMMA_WAIT(waiting, sums) SM_90A "wgmma.wait_group.sync.aligned " #waiting ";" : sums : : "memory"
#define WAIT_64(waiting, s) asm volatile(WGMMA_WAIT(waiting, OUT32(s, 0)))
#define WAIT_80(waiting, s) asm volatile(WGMMA_WAIT(waiting, OUT40(s, 0)))
#define WAIT_96(waiting, s) asm volatile(WGMMA_WAIT(waiting, OUT48(s, 0)))
#define WAIT_112(waiting, s) asm volatile(WGMMA_WAIT(waiting, OUT56(s, 0)))
#define WAIT_128(waiting, s) asm volatile(WGMMA_WAIT(waiting, OUT64(s, 0)))
#define WAIT_160(waiting, s) asm volatile(WGMMA_WAIT(waiting, OUT80(s, 0)))
#define WAIT_192(waiting, s) asm volatile(WGMMA_WAIT(waiting, OUT96(s, 0)))
#define WAIT_256(waiting, s) asm volatile(WGMMA_WAIT(waiting, OUT128(s, 0)))
// sums (+)= rows from local memory (SS) times N columns whose features are contiguous, as in q k^T. COUNT is N / 2, and X to
// MORE are the numbers of the operands behind the sums.
#define MULTIPLY_SS(N, COUNT, X, Y, MORE, TYPE, s, x, y, more)                                      \
    asm volatile(WGMMA(N, TYPE, NAMES##COUNT, #MORE) "%" #X ", %" #Y ", p, 1, 1, 0, 0; }" \
                 : OUT##COUNT(s, 0)                                                                 \
                 : "l"(x), "l"(y), "r"(more))
#define MULTIPLY_SS_64(TYPE, s, x, y, more) MULTIPLY_SS(64, 32, 32, 33, 34, TYPE, s, x, y, more)
#define MULTIPLY_SS_96(TYPE, s, x, y, more) MULTIPLY_SS(96, 48, 48, 49, 50, TYPE, s, x, y, more)
#define MULTIPLY_SS_128(TYPE, s, x, y, more) MULTIPLY_SS(128, 64, 64, 65, 66, TYPE, s, x, y, more)
// sums (+)= rows from registers (RS) times N columns whose rows are the reduction axis, as in p v. COUNT is N / 2, and A to MORE
// are the numbers of the operands behind the sums.
#define MULTIPLY_RS(N, COUNT, A, B, C, D, Y, MORE, TYPE, s, x, y, more)                                       \
    asm volatile(WGMMA(N, TYPE, NAMES##COUNT, #MORE) "{%" #A ", %" #B ", %" #C ", %" #D "}, %" #Y ", p, 1, 1, 1; }" \
                 : OUT##COUNT(s, 0)                                                                            \
                 : "r"((x).r[0]), "r"((x).r[1]), "r"((x).r[2]), "r"((x).r[3]), "l"(y), "r"(more))
#define MULTIPLY_RS_64(TYPE, s, x, y, more) MULTIPLY_RS(64, 32, 32, 33, 34, 35, 36, 37, TYPE, s, x, y, more)
#define MULTIPLY_RS_80(TYPE, s, x, y, more) MULTIPLY_RS(80, 40, 40, 41, 42, 43, 44, 45, TYPE, s, x, y, more)
#define MULTIPLY_RS_96(TYPE, s, x, y, more) MULTIPLY_RS(96, 48, 48, 49, 50, 51, 52, 53, TYPE, s, x, y, more)
#define MULTIPLY_RS_112(TYPE, s, x, y, more) MULTIPLY_RS(112, 56, 56, 57, 58, 59, 60, 61, TYPE, s, x, y, more)
#define MULTIPLY_RS_128(TYPE, s, x, y, more) MULTIPLY_RS(128, 64, 64, 65, 66, 67, 68, 69, TYPE, s, x, y, more)
#define MULTIPLY_RS_160(TYPE, s, x, y, more) MULTIPLY_RS(160, 80, 80, 81, 82, 83, 84, 85, TYPE, s, x, y, more)
#define MULTIPLY_RS_192(TYPE, s, x, y, more) MULTIPLY_RS(192, 96, 96, 97, 98, 99, 100, 101, TYPE, s, x, y, more)
#define MULTIPLY_RS_256(TYPE, s, x, y, more) MULTIPLY_RS(256, 128, 128, 129, 130, 131, 132, 133, TYPE, s, x, y, more)
#define WGMMA_TYPE_float16 "f16"
#define WGMMA_TYPE_bfloat16 "bf16"
#define WGMMA_TYPE CONCAT(WGMMA_TYPE_, DTYPE)

// Features 16 * k to 16 * k + 15 of term `term` of a block of `count` rows.
#define FEATURES_AT(memory, term, k, count, features) \
    (panel_descriptor(memory, 1) + ((term) * PITCH(features) + (k) / 4 * LINE_WORDS) * (count) / 4 + (k) % 4 * 2)
// Rows 16 * k to 16 * k + 15 of a block of COLUMNS rows, as the reduction axis.
#define COLUMNS_AT(memory, term, k, features) \
    (panel_descriptor(memory, COLUMNS * 8) + (term) * PITCH(features) * COLUMNS / 4 + (k) * 128)

// Begin sums[0][n] = the warpgroup's rows, which start at `rows` in panels of `row_count` lines, times column tile n of
// `memory`. END_MULTIPLY waits for them; `waiting` later products may then still be in flight.
#define BEGIN_MULTIPLY(sums, rows, row_count, memory, features)                                                             \
    {                                                                                                                       \
        float *sums_ = &sums[0][0][0];                                                                                      \
        WGMMA_FENCE();                                                                                                      \
        UNROLL for (uint i_ = 0; i_ < TERM_PRODUCTS; i_++)                                                                  \
            UNROLL for (uint k_ = 0; k_ < (features) / 16; k_++)                                                            \
                CONCAT(MULTIPLY_SS_, COLUMNS)(WGMMA_TYPE, sums_, FEATURES_AT(rows, LEFT_TERM(i_), k_, row_count, features), \
                                           FEATURES_AT(memory, RIGHT_TERM(i_), k_, COLUMNS, features),                      \
                                           (int)(i_ + k_ > 0));                                                             \
        WGMMA_COMMIT();                                                                                                     \
    }
#define END_MULTIPLY(waiting, sums) CONCAT(WAIT_, COLUMNS)(waiting, (&sums[0][0][0]))
// Begin acc[0][n] += weights[0][k], rounded if there is one term, times the features of the columns in `memory`.
// END_ACCUMULATE waits for them.
#if BF16_TERMS == 1
#define PRODUCT_SUMS(acc, features) float *sums_ = &acc[0][0][0]
#define END_PRODUCT(acc, features)
#define END_ACCUMULATE(acc, features) CONCAT(WAIT_, features)(0, (&acc[0][0][0]))
#else
// The units truncate towards zero as they add. To keep this from accumulating over the columns, the product of a tile starts
// at zero and is added by an ordinary, rounding addition.
#define PRODUCT_SUMS(acc, features) float sums_[(features) / 16 * SUMS]
#define END_PRODUCT(acc, features)                       \
    CONCAT(WAIT_, features)(0, sums_);                   \
    UNROLL for (uint n_ = 0; n_ < (features) / 16; n_++) \
        UNROLL for (uint i_ = 0; i_ < SUMS; i_++) acc[0][n_][i_] += sums_[n_ * SUMS + i_]
#define END_ACCUMULATE(acc, features)
#endif
// The weights of a block as operands, which stay in registers until a product with them has ended.
#define DECLARE_PACKED(packed) Fragment packed[BLOCKS]
#define PACK_WEIGHTS(packed, weights) \
    UNROLL for (uint k_ = 0; k_ < BLOCKS; k_++) packed[k_] = FRAGMENT_OF_SUMS(DTYPE, weights[0][k_], 0)
#define BEGIN_ACCUMULATE_PACKED(acc, packed, memory, features, scratch)                                  \
    {                                                                                                    \
        float *sums_ = &acc[0][0][0];                                                                    \
        WGMMA_FENCE();                                                                                   \
        UNROLL for (uint k_ = 0; k_ < BLOCKS; k_++)                                                      \
            CONCAT(MULTIPLY_RS_, features)(WGMMA_TYPE, sums_, packed[k_], COLUMNS_AT(memory, 0, k_, features), 1); \
        WGMMA_COMMIT();                                                                                  \
    }
#define BEGIN_ACCUMULATE(acc, weights, memory, features, scratch)                           \
    {                                                                                       \
        Fragment left_[BLOCKS][BF16_TERMS];                                                 \
        PRODUCT_SUMS(acc, features);                                                        \
        UNROLL for (uint k_ = 0; k_ < BLOCKS; k_++)                                         \
            fragments_of_weights(weights[0][k_], left_[k_], scratch);                       \
        WGMMA_FENCE();                                                                      \
        UNROLL for (uint i_ = 0; i_ < TERM_PRODUCTS; i_++)                                  \
            UNROLL for (uint k_ = 0; k_ < BLOCKS; k_++)                                     \
                CONCAT(MULTIPLY_RS_, features)(WGMMA_TYPE, sums_, left_[k_][LEFT_TERM(i_)], \
                                          COLUMNS_AT(memory, RIGHT_TERM(i_), k_, features), \
                                          (int)(BF16_TERMS == 1 || i_ + k_ > 0));           \
        WGMMA_COMMIT();                                                                     \
        END_PRODUCT(acc, features);                                                         \
    }
#else
#define FENCE_COPIES()
static inline float element_at(__local const uint *memory, const uint row, const uint column, const uint count) {
    return LOAD(DTYPE, (__local const STORAGE(DTYPE) *)memory, SWIZZLED_WORD(row, column, count) * 2 + column % 2);
}
#define BEGIN_MULTIPLY(sums, rows, row_count, memory, features)                                                \
    for (uint n_ = 0; n_ < BLOCKS; n_++)                                                                       \
        for (uint i_ = 0; i_ < SUMS; i_++) {                                                                   \
            float sum_ = 0;                                                                                    \
            for (uint p_ = 0; p_ < TERM_PRODUCTS; p_++)                                                        \
                for (uint c_ = 0; c_ < (features); c_++)                                                       \
                    sum_ += element_at((rows) + LEFT_TERM(p_) * (row_count) * PITCH(features),                 \
                                       get_local_id(0) % WARPGROUP / WARP * 16 + SUM_ROW(i_), c_, row_count) * \
                            element_at((memory) + RIGHT_TERM(p_) * COLUMNS * PITCH(features),                  \
                                       TILE_COLUMN(n_, i_), c_, COLUMNS);                                      \
            sums[0][n_][i_] = sum_;                                                                            \
        }
#define END_MULTIPLY(waiting, sums)
#define BEGIN_ACCUMULATE(acc, weights, memory, features, scratch)                                           \
    for (uint k_ = 0; k_ < BLOCKS; k_++) {                                                                  \
        __local uint *mine_ = (scratch) + get_local_id(0) / WARP * 128 * BF16_TERMS;                        \
        Fragment left_[BF16_TERMS];                                                                         \
        WARP_BARRIER();                                                                                     \
        fragments_of_weights(weights[0][k_], left_, mine_);                                                 \
        WARP_BARRIER();                                                                                     \
        for (uint p_ = 0; p_ < TERM_PRODUCTS; p_++)                                                         \
            for (uint n_ = 0; n_ < (features) / 16; n_++)                                                   \
                for (uint i_ = 0; i_ < SUMS; i_++)                                                          \
                    for (uint c_ = 0; c_ < 16; c_++)                                                        \
                        acc[0][n_][i_] +=                                                                   \
                            CONCAT(element_, DTYPE)(left_[LEFT_TERM(p_)], SUM_ROW(i_), c_) *                \
                            element_at((memory) + RIGHT_TERM(p_) * COLUMNS * PITCH(features), 16 * k_ + c_, \
                                       TILE_COLUMN(n_, i_), COLUMNS);                                       \
    }
#define END_ACCUMULATE(acc, features)
#define DECLARE_PACKED(packed) float packed[1][BLOCKS][SUMS]
#define PACK_WEIGHTS(packed, weights)           \
    for (uint k_ = 0; k_ < BLOCKS; k_++)        \
        for (uint i_ = 0; i_ < SUMS; i_++) packed[0][k_][i_] = weights[0][k_][i_]
#define BEGIN_ACCUMULATE_PACKED(acc, packed, memory, features, scratch) \
    BEGIN_ACCUMULATE(acc, packed, memory, features, scratch);           \
    WARP_BARRIER()
#endif

#endif
