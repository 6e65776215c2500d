// The tiles of attention/mma_tile.h for Hopper's matrix units (compute capability 9.0): four warps make 64 rows of scores together, from
// operands that the units read from local memory by themselves. Instructions that sm_90 lacks are written as PTX comments
// that begin with `//sm_90a `; backends/opencl/ptx.py makes instructions of them. With TENSOR_CORES 0 it is plain C.
//
// Features lie in panels of 64, lines of 128 bytes that begin at multiples of 1024 bytes. In line l the 16-byte pieces trade places: piece p
// is where p ^ (l % 8) would be, so that no two banks collide.

#ifndef POLYHAL_HEAD_WGMMA
#define POLYHAL_HEAD_WGMMA

#define WARPGROUP 128
#define LINE 64
#define LINE_WORDS 32
// Words between rows, all panels together.
#define PITCH(features) ((features) / 2)
#define PLACE(row, column, count) \
    (((column) / LINE * (count) + (row)) * LINE_WORDS + (((column) % LINE / 8) ^ ((row) % 8)) * 4 + (column) % 8 / 2)
#define AT(row, column, count, features) PLACE(row, column, count)

#if TENSOR_CORES
#define SM_90A "//sm_90a "
#define SEE_COPIES() asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
#define BEGIN_PRODUCTS() asm volatile(SM_90A "wgmma.fence.sync.aligned;" ::: "memory")
#define COMMIT_PRODUCTS() asm volatile(SM_90A "wgmma.commit_group.sync.aligned;" ::: "memory")

// How the units find a panel: address, distance of the next 64 places, distance of the next eight lines, all in units of 16
// bytes, and the exchange of pieces.
inline ulong panel_at(__local const uint *first, const uint next_places) {
    const uint address = (uint)(size_t)first;
    return (ulong)((address & 0x3ffffu) >> 4) | (ulong)next_places << 16 | (ulong)64 << 32 | (ulong)1 << 62;
}

#define OUT8(s, i)                                                                                                     \
    "+f"((s)[i]), "+f"((s)[i + 1]), "+f"((s)[i + 2]), "+f"((s)[i + 3]), "+f"((s)[i + 4]), "+f"((s)[i + 5]), "+f"((s)[i + 6]), \
        "+f"((s)[i + 7])
#define OUT32(s, i) OUT8(s, i), OUT8(s, i + 8), OUT8(s, i + 16), OUT8(s, i + 24)
#define OUT64(s, i) OUT32(s, i), OUT32(s, i + 32)
#define NAMES32                                                                                           \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
    "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES64                                                                                                    \
    NAMES32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, " \
            "%52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA(N, TYPE, NAMES, MORE) \
    SM_90A "{ .reg .pred p; setp.ne.b32 p, %" MORE ", 0; "  \
           "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" NAMES "}, "
// Waits until no more than `waiting` products are under way. It names the sums of what it waits for, so that nothing is done with
// them before.
#define AWAIT(waiting, sums) SM_90A "wgmma.wait_group.sync.aligned " #waiting ";" : sums : : "memory"
#define AWAIT_64(waiting, s) asm volatile(AWAIT(waiting, OUT32(s, 0)))
#define AWAIT_128(waiting, s) asm volatile(AWAIT(waiting, OUT64(s, 0)))
// sums (+)= rows from local memory times columns whose terms lie side by side.
#define MULTIPLY_64(TYPE, s, x, y, more)                                  \
    asm volatile(WGMMA(64, TYPE, NAMES32, "34") "%32, %33, p, 1, 1, 0, 0; }" \
                 : OUT32(s, 0)                                            \
                 : "l"(x), "l"(y), "r"(more))
#define MULTIPLY_128(TYPE, s, x, y, more)                                 \
    asm volatile(WGMMA(128, TYPE, NAMES64, "66") "%64, %65, p, 1, 1, 0, 0; }" \
                 : OUT64(s, 0)                                            \
                 : "l"(x), "l"(y), "r"(more))
// sums (+)= rows from registers times columns that lie side by side.
#define GATHER_64(TYPE, s, x, y, more)                                                   \
    asm volatile(WGMMA(64, TYPE, NAMES32, "37") "{%32, %33, %34, %35}, %36, p, 1, 1, 1; }" \
                 : OUT32(s, 0)                                                                   \
                 : "r"((x).r[0]), "r"((x).r[1]), "r"((x).r[2]), "r"((x).r[3]), "l"(y), "r"(more))
#define GATHER_128(TYPE, s, x, y, more)                                                  \
    asm volatile(WGMMA(128, TYPE, NAMES64, "69") "{%64, %65, %66, %67}, %68, p, 1, 1, 1; }" \
                 : OUT64(s, 0)                                                                   \
                 : "r"((x).r[0]), "r"((x).r[1]), "r"((x).r[2]), "r"((x).r[3]), "l"(y), "r"(more))
#define UNIT_TYPE_float16 "f16"
#define UNIT_TYPE_bfloat16 "bf16"
#define UNIT_TYPE CONCAT(UNIT_TYPE_, DTYPE)

// The 16 terms from 16 * k on of part `part` of operands with `count` lines.
#define TERMS_AT(memory, part, k, count, features) \
    (panel_at((memory) + ((part) * PITCH(features) + (k) / 4 * LINE_WORDS) * (count), 1) + (k) % 4 * 2)
// The 16 columns from 16 * k on, whose features make places.
#define COLUMNS_AT(memory, part, k, features) \
    (panel_at((memory) + (part) * PITCH(features) * COLUMNS, COLUMNS * 8) + (k) * 128)

// Begins to make sums[0][n] = products of the team's rows, which begin at `own` in panels of `own_rows` lines, and block n of the
// columns in `memory`; they are there after END_MULTIPLY, when `waiting` later products may still be under way.
#define BEGIN_MULTIPLY(sums, own, own_rows, memory, features)                                                  \
    {                                                                                                          \
        float *sums_ = &sums[0][0][0];                                                                         \
        BEGIN_PRODUCTS();                                                                                      \
        UNROLL for (uint i_ = 0; i_ < PART_PRODUCTS; i_++)                                               \
            UNROLL for (uint k_ = 0; k_ < (features) / 16; k_++)                                    \
                CONCAT(MULTIPLY_, COLUMNS)(UNIT_TYPE, sums_, TERMS_AT(own, LEFT_PART(i_), k_, own_rows, features), \
                                           TERMS_AT(memory, RIGHT_PART(i_), k_, COLUMNS, features),            \
                                           (int)(i_ + k_ > 0));                                                \
        COMMIT_PRODUCTS();                                                                                     \
    }
#define END_MULTIPLY(waiting, sums) CONCAT(AWAIT_, COLUMNS)(waiting, (&sums[0][0][0]))
// Begins to add weights[0][k], rounded unless in parts, times the columns' features in `memory` to results[0][n]; they are there after
// END_GATHER.
#if PARTS == 1
#define PRODUCT_SUMS(results, features) float *sums_ = &results[0][0][0]
#define END_PRODUCT(results, features)
#define END_GATHER(results, features) CONCAT(AWAIT_, features)(0, (&results[0][0][0]))
#else
// The units cut off what does not fit while they add, always towards zero. So that this does not pile up over the columns, the product
// of a tile starts at zero and is added by an ordinary, rounding addition.
#define PRODUCT_SUMS(results, features) float sums_[(features) / 16 * SUMS]
#define END_PRODUCT(results, features)                                                                         \
    CONCAT(AWAIT_, features)(0, sums_);                                                                        \
    UNROLL for (uint n_ = 0; n_ < (features) / 16; n_++)                                            \
        UNROLL for (uint i_ = 0; i_ < SUMS; i_++) results[0][n_][i_] += sums_[n_ * SUMS + i_]
#define END_GATHER(results, features)
#endif
#define BEGIN_GATHER(results, weights, memory, features, scratch)                                              \
    {                                                                                                          \
        Fragment left_[BLOCKS][PARTS];                                                                         \
        PRODUCT_SUMS(results, features);                                                                       \
        UNROLL for (uint k_ = 0; k_ < BLOCKS; k_++)                                                 \
            fragments_of_weights(weights[0][k_], left_[k_], scratch);                                          \
        BEGIN_PRODUCTS();                                                                                      \
        UNROLL for (uint i_ = 0; i_ < PART_PRODUCTS; i_++)                                               \
            UNROLL for (uint k_ = 0; k_ < BLOCKS; k_++)                                             \
                CONCAT(GATHER_, features)(UNIT_TYPE, sums_, left_[k_][LEFT_PART(i_)],                          \
                                          COLUMNS_AT(memory, RIGHT_PART(i_), k_, features),                  \
                                          (int)(PARTS == 1 || i_ + k_ > 0));                                   \
        COMMIT_PRODUCTS();                                                                                     \
        END_PRODUCT(results, features);                                                                        \
    }
#else
#define SEE_COPIES()
inline float element_at(__local const uint *memory, const uint row, const uint column, const uint count) {
    return LOAD(DTYPE, (__local const STORAGE(DTYPE) *)memory, PLACE(row, column, count) * 2 + column % 2);
}
#define BEGIN_MULTIPLY(sums, own, own_rows, memory, features)                                                  \
    for (uint n_ = 0; n_ < BLOCKS; n_++)                                                                       \
        for (uint i_ = 0; i_ < SUMS; i_++) {                                                                   \
            float sum_ = 0;                                                                                    \
            for (uint p_ = 0; p_ < PART_PRODUCTS; p_++)                                                             \
                for (uint c_ = 0; c_ < (features); c_++)                                                       \
                    sum_ += element_at((own) + LEFT_PART(p_) * (own_rows) * PITCH(features),                   \
                                       get_local_id(0) % WARPGROUP / WARP * 16 + SUM_ROW(i_), c_, own_rows) *       \
                            element_at((memory) + RIGHT_PART(p_) * COLUMNS * PITCH(features),                  \
                                       BLOCK_COLUMN(n_, i_), c_, COLUMNS);                                     \
            sums[0][n_][i_] = sum_;                                                                            \
        }
#define END_MULTIPLY(waiting, sums)
#define BEGIN_GATHER(results, weights, memory, features, scratch)                                              \
    for (uint k_ = 0; k_ < BLOCKS; k_++) {                                                                     \
        __local uint *mine_ = (scratch) + get_local_id(0) / WARP * 128 * PARTS;                                \
        Fragment left_[PARTS];                                                                                 \
        WARP_BARRIER();                                                                                        \
        fragments_of_weights(weights[0][k_], left_, mine_);                                                    \
        WARP_BARRIER();                                                                                        \
        for (uint p_ = 0; p_ < PART_PRODUCTS; p_++)                                                                 \
            for (uint n_ = 0; n_ < (features) / 16; n_++)                                                      \
                for (uint i_ = 0; i_ < SUMS; i_++)                                                             \
                    for (uint c_ = 0; c_ < 16; c_++)                                                           \
                        results[0][n_][i_] +=                                                                  \
                            CONCAT(element_, DTYPE)(left_[LEFT_PART(p_)], SUM_ROW(i_), c_) *                   \
                            element_at((memory) + RIGHT_PART(p_) * COLUMNS * PITCH(features), 16 * k_ + c_,    \
                                       BLOCK_COLUMN(n_, i_), COLUMNS);                                         \
    }
#define END_GATHER(results, features)
#endif

#endif
