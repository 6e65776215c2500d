// Products of 16 x 16 blocks by a warp of 32 neighbouring work-items on NVIDIA's tensor cores (mma.sync, compute capability
// 8.0 and later), and a portable fallback in plain C of the same structure for TENSOR_CORES 0.
//
// A Fragment is 16 rows of a, or 16 columns of b, by TERMS(D) terms, 32 bytes each. It is loaded from a tile in local
// memory:
//   K_MAJOR:   the lines of the tile are rows of a or columns of b, and the terms of a line are contiguous. `pitch`, the words
//              from one line to the next, is 4 modulo 8.
//   MN_MAJOR:  the lines are terms, and the rows of a, or columns of b, are contiguous. `pitch` is 4 modulo 8 for 16-bit
//              elements and 8 modulo 32 for float32.
// These pitches avoid bank conflicts. `tile` points to the first element of the block and is aligned to 16 bytes.
// A_FRAGMENT_* and B_FRAGMENT_* differ in the order of registers, so that MULTIPLY takes fragments of b in pairs of
// neighbours.
//
// MULTIPLY(D, sums, a, b) adds the product to the 8 float32 accumulators that a work-item holds of a block of results:
// accumulator i is at row SUM_ROW(i) and column SUM_COLUMN(i).
//
// In the fallback a Fragment only refers to its tile, which must therefore stay unchanged until the last product with it.
// If accumulators of one work-item become operands of another, a WARP_BARRIER must separate the two.
//
// D is float16, bfloat16 or float32. Tensor cores read float32 as TF32, with 11 significant bits: `rounded` rounds to it,
// and `high_term` and `low_term` split a float32 into two TF32 terms; three products of them have float32's accuracy.
// Source: Ootomo and Yokota, 2022, "Recovering single precision accuracy from Tensor Cores".

#ifndef POLYHAL_MMA
#define POLYHAL_MMA

#ifndef TENSOR_CORES
#define TENSOR_CORES 0
#endif
#include "lib/dtypes.h"

#define WARP 32
#define WARP_LANE (get_local_id(0) % WARP)
#define SUMS 8
#define SUM_ROW(i) (WARP_LANE / 4 + ((i) / 2 % 2) * 8)
#define SUM_COLUMN(i) (WARP_LANE % 4 * 2 + (i) % 2 + (i) / 4 * 8)

#define TERMS_float16 16
#define TERMS_bfloat16 16
#define TERMS_float32 8
#define TERMS(D) CONCAT(TERMS_, D)

#define A_FRAGMENT_K_MAJOR(D, tile, pitch) CONCAT(a_fragment_k_major_, D)(tile, pitch)
#define A_FRAGMENT_MN_MAJOR(D, tile, pitch) CONCAT(a_fragment_mn_major_, D)(tile, pitch)
#define FRAGMENT_OF_SUMS(D, sums, scratch) CONCAT(fragment_of_sums_, D)(sums, scratch)
#define B_FRAGMENT_K_MAJOR(D, tile, pitch) CONCAT(b_fragment_k_major_, D)(tile, pitch)
#define B_FRAGMENT_MN_MAJOR(D, tile, pitch) CONCAT(b_fragment_mn_major_, D)(tile, pitch)
#define MULTIPLY(D, sums, a, b) CONCAT(multiply_, D)(sums, a, b)

// Adds half a unit in the last place of TF32 and truncates, which rounds to nearest. Numbers next to the largest become
// infinite, and an infinite number has no low term; a kernel that splits is followed by gemm/bf16_repair.cl.
static inline uint rounded_bits(uint bits) { return (bits + 0x1000u) & 0xffffe000u; }

static inline uint low_bits(uint bits) { return rounded_bits(as_uint(as_float(bits) - as_float(rounded_bits(bits)))); }

#if TENSOR_CORES

#define WARP_BARRIER() asm volatile("bar.warp.sync 0xffffffff;" ::: "memory")

typedef struct {
    uint r[4];
} Fragment;

// Loads four matrices of 8 lines by 16 bytes. Each lane supplies the address of one line: line `line` of the tile, and
// 16-byte chunk `chunk` of it.
#define LDMATRIX_FRAGMENT(name, TRANS, line, chunk)                                              \
    static inline Fragment name(__local const uint *tile, const uint pitch) {                    \
        Fragment f;                                                                              \
        asm volatile("ldmatrix.sync.aligned.m8n8.x4" TRANS ".shared.b16 {%0, %1, %2, %3}, [%4];" \
                     : "=r"(f.r[0]), "=r"(f.r[1]), "=r"(f.r[2]), "=r"(f.r[3])                    \
                     : "r"((uint)(size_t)(tile + (line) * pitch + (chunk) * 4))                  \
                     : "memory");                                                                \
        return f;                                                                                \
    }
// Rows 0-7 and 8-15 of the first 16 bytes of terms, then of the second.
LDMATRIX_FRAGMENT(a_fragment_k_major_float16, "", WARP_LANE % 16, WARP_LANE / 16)
LDMATRIX_FRAGMENT(a_fragment_mn_major_float16, ".trans", WARP_LANE % 8 + WARP_LANE / 16 * 8, WARP_LANE / 8 % 2)
// The first and second 16 bytes of terms of columns 0-7, then of 8-15.
LDMATRIX_FRAGMENT(b_fragment_k_major_float16, "", WARP_LANE % 8 + WARP_LANE / 16 * 8, WARP_LANE / 8 % 2)
LDMATRIX_FRAGMENT(b_fragment_mn_major_float16, ".trans", WARP_LANE % 16, WARP_LANE / 16)
#define a_fragment_k_major_bfloat16 a_fragment_k_major_float16
#define a_fragment_k_major_float32 a_fragment_k_major_float16
#define a_fragment_mn_major_bfloat16 a_fragment_mn_major_float16
#define b_fragment_k_major_bfloat16 b_fragment_k_major_float16
#define b_fragment_k_major_float32 b_fragment_k_major_float16
#define b_fragment_mn_major_bfloat16 b_fragment_mn_major_float16

static inline Fragment a_fragment_mn_major_float32(__local const uint *tile, const uint pitch) {
    Fragment f;
    tile += WARP_LANE % 4 * pitch + WARP_LANE / 4;
    f.r[0] = tile[0];
    f.r[1] = tile[8];
    f.r[2] = tile[4 * pitch];
    f.r[3] = tile[4 * pitch + 8];
    return f;
}

static inline Fragment b_fragment_mn_major_float32(__local const uint *tile, const uint pitch) {
    const Fragment f = a_fragment_mn_major_float32(tile, pitch);
    const Fragment b = {{f.r[0], f.r[2], f.r[1], f.r[3]}};
    return b;
}

// Rounds a block of accumulators to a fragment of a for the next product: 16 rows by 16 terms. Needs no memory.
static inline uint pair_of_halves(float low, float high) {
    uint bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

static inline uint bfloats_of_floats(float low, float high) {
    uint bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

static inline Fragment fragment_of_sums_float16(const float *sums, __local uint *scratch) {
    Fragment f;
#pragma unroll
    for (uint i = 0; i < 4; i++) f.r[i] = pair_of_halves(sums[2 * i], sums[2 * i + 1]);
    return f;
}

static inline Fragment fragment_of_sums_bfloat16(const float *sums, __local uint *scratch) {
    Fragment f;
#pragma unroll
    for (uint i = 0; i < 4; i++) f.r[i] = bfloats_of_floats(sums[2 * i], sums[2 * i + 1]);
    return f;
}

#define MMA(SHAPE, TYPE, sums, a, b0, b1)                                    \
    asm("mma.sync.aligned." SHAPE ".row.col.f32." TYPE "." TYPE ".f32 "      \
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"    \
        : "+f"((sums)[0]), "+f"((sums)[1]), "+f"((sums)[2]), "+f"((sums)[3]) \
        : "r"((a).r[0]), "r"((a).r[1]), "r"((a).r[2]), "r"((a).r[3]), "r"(b0), "r"(b1))
#define PRODUCTS(name, SHAPE, TYPE)                                                \
    static inline void multiply_##name(float *sums, const Fragment a, const Fragment b) { \
        MMA(SHAPE, TYPE, sums, a, b.r[0], b.r[1]);                                 \
        MMA(SHAPE, TYPE, sums + 4, a, b.r[2], b.r[3]);                             \
    }
PRODUCTS(float16, "m16n8k16", "f16")
PRODUCTS(bfloat16, "m16n8k16", "bf16")
PRODUCTS(float32, "m16n8k8", "tf32")

static inline Fragment rounded(const Fragment x) {
    Fragment f;
#pragma unroll
    for (uint i = 0; i < 4; i++) f.r[i] = x.r[i] + 0x1000u;  // tensor cores truncate the remainder
    return f;
}

static inline Fragment high_term(const Fragment x) {
    Fragment f;
#pragma unroll
    for (uint i = 0; i < 4; i++) f.r[i] = rounded_bits(x.r[i]);
    return f;
}

static inline Fragment low_term(const Fragment x, const Fragment high) {
    Fragment f;
#pragma unroll
    for (uint i = 0; i < 4; i++) f.r[i] = as_uint(as_float(x.r[i]) - as_float(high.r[i])) + 0x1000u;
    return f;
}

#else

#define WARP_BARRIER() barrier(CLK_LOCAL_MEM_FENCE)

enum { WHOLE_NUMBER, HIGH_TERM, LOW_TERM };

typedef struct {
    __local const uint *tile;
    uint pitch;
    uint mn_major;
    uint which;
} Fragment;

static inline Fragment fragment_at(__local const uint *tile, const uint pitch, const uint mn_major) {
    Fragment f;
    f.tile = tile;
    f.pitch = pitch;
    f.mn_major = mn_major;
    f.which = WHOLE_NUMBER;
    return f;
}

#define a_fragment_k_major_float16(tile, pitch) fragment_at(tile, pitch, 0)
#define a_fragment_k_major_bfloat16(tile, pitch) fragment_at(tile, pitch, 0)
#define a_fragment_k_major_float32(tile, pitch) fragment_at(tile, pitch, 0)
#define a_fragment_mn_major_float16(tile, pitch) fragment_at(tile, pitch, 1)
#define a_fragment_mn_major_bfloat16(tile, pitch) fragment_at(tile, pitch, 1)
#define a_fragment_mn_major_float32(tile, pitch) fragment_at(tile, pitch, 1)
#define b_fragment_k_major_float16 a_fragment_k_major_float16
#define b_fragment_k_major_bfloat16 a_fragment_k_major_bfloat16
#define b_fragment_k_major_float32 a_fragment_k_major_float32
#define b_fragment_mn_major_float16 a_fragment_mn_major_float16
#define b_fragment_mn_major_bfloat16 a_fragment_mn_major_bfloat16
#define b_fragment_mn_major_float32 a_fragment_mn_major_float32

static inline float term_of(float value, uint which) {
    const uint bits = as_uint(value);
    return which == HIGH_TERM ? as_float(rounded_bits(bits)) : which == LOW_TERM ? as_float(low_bits(bits)) : value;
}

#define ELEMENT_AND_PRODUCT(D, PER_WORD)                                                              \
    static inline float element_##D(const Fragment f, uint mn, uint term) {                           \
        __local const STORAGE(D) *p = (__local const STORAGE(D) *)f.tile;                             \
        const uint at = f.mn_major ? term * f.pitch * PER_WORD + mn : mn * f.pitch * PER_WORD + term; \
        return term_of(LOAD(D, p, at), f.which);                                                      \
    }                                                                                                 \
    static inline void multiply_##D(float *sums, const Fragment a, const Fragment b) {                \
        for (uint i = 0; i < SUMS; i++)                                                               \
            for (uint term = 0; term < TERMS(D); term++)                                              \
                sums[i] += element_##D(a, SUM_ROW(i), term) * element_##D(b, SUM_COLUMN(i), term);    \
    }
ELEMENT_AND_PRODUCT(float16, 2)
ELEMENT_AND_PRODUCT(bfloat16, 2)
ELEMENT_AND_PRODUCT(float32, 1)

// Here the accumulators go through `scratch`, 128 words for each warp: place a WARP_BARRIER before and after the
// products.
#define FRAGMENT_THROUGH_MEMORY(D)                                                             \
    static inline Fragment fragment_of_sums_##D(const float *sums, __local uint *scratch) {    \
        __local STORAGE(D) *p = (__local STORAGE(D) *)scratch;                                 \
        for (uint i = 0; i < SUMS; i++) STORE(D, sums[i], p, SUM_ROW(i) * 16 + SUM_COLUMN(i)); \
        return fragment_at(scratch, 8, 0);                                                     \
    }
FRAGMENT_THROUGH_MEMORY(float16)
FRAGMENT_THROUGH_MEMORY(bfloat16)

static inline Fragment high_term(const Fragment x) {
    Fragment f = x;
    f.which = HIGH_TERM;
    return f;
}

static inline Fragment low_term(const Fragment x, const Fragment high) {
    Fragment f = x;
    f.which = LOW_TERM;
    return f;
}

#define rounded(x) high_term(x)

#endif

#endif
