// Products of 16 x 16 blocks by a warp of 32 neighbouring work-items on NVIDIA's tensor cores (compute capability 8.0
// and later), and a twin in plain C of the same shape, for TENSOR_CORES 0, which any device runs.
//
// A Fragment is 16 places (rows of the left or columns of the right operand: the same type serves both) by TERMS(D)
// terms, 32 bytes each, that were staged in local memory as words:
//   along terms:   place after place, `pitch` words apart, the terms of a place side by side; `pitch` is 4 modulo 8.
//   along places:  term after term, `pitch` words apart, the places side by side; `pitch` is 4 modulo 8 for 16-bit
//                  elements and 8 modulo 32 for float32. With these pitches no two banks of local memory collide.
// `tile` points to the block's first element and is aligned to 16 bytes. MULTIPLY(D, sums, left, right) adds the
// product to the 8 sums that a work-item holds of a block: sum i is at row SUM_ROW(i) and column SUM_COLUMN(i). Sums
// are float32.
//
// The twin's Fragment only remembers where the elements lie, and each work-item adds up its own 8 sums from there.
// The memory under a fragment must therefore stay as it is until its last product; and where one work-item's sums
// become another's operand, WARP_BARRIER has to stand in between.
//
// D is float16, bfloat16 or float32, which the units read as TF32: 11 significant bits. `rounded` rounds to them;
// `high_part` and `low_part` split float32 in two such numbers, of which MULTIPLY_SPLIT makes a product as exact as
// float32's.

#ifndef POLYHAL_MMA
#define POLYHAL_MMA

#ifndef TENSOR_CORES
#define TENSOR_CORES 0
#endif
#include "dtypes.h"

#define WARP 32
#define WARP_LANE (get_local_id(0) % WARP)
#define SUMS 8
#define SUM_ROW(i) (WARP_LANE / 4 + ((i) / 2 % 2) * 8)
#define SUM_COLUMN(i) (WARP_LANE % 4 * 2 + (i) % 2 + (i) / 4 * 8)

#define TERMS_float16 16
#define TERMS_bfloat16 16
#define TERMS_float32 8
#define TERMS(D) CONCAT(TERMS_, D)

#define ALONG_TERMS(D, tile, pitch) CONCAT(along_terms_, D)(tile, pitch)
#define ALONG_PLACES(D, tile, pitch) CONCAT(along_places_, D)(tile, pitch)
#define FRAGMENT_OF_SUMS(D, sums, scratch) CONCAT(fragment_of_sums_, D)(sums, scratch)
#define MULTIPLY(D, sums, left, right) CONCAT(multiply_, D)(sums, left, right)

// Adding half a unit and cutting rounds to nearest. Numbers next to the largest become infinite, and what is infinite
// has no low part: who splits looks for results that are not finite, and makes them in float32.
inline uint rounded_bits(uint bits) { return (bits + 0x1000u) & 0xffffe000u; }

inline uint low_bits(uint bits) { return rounded_bits(as_uint(as_float(bits) - as_float(rounded_bits(bits)))); }

#if TENSOR_CORES

#define WARP_BARRIER() asm volatile("bar.warp.sync 0xffffffff;" ::: "memory")

typedef struct {
    uint r[4];
} Fragment;

// Both operands want the same four matrices of 8 x 16 bytes: places 0-7 and 8-15 of the first 16 bytes of terms, then
// of the second.
inline Fragment along_terms_float16(__local const uint *tile, const uint pitch) {
    Fragment f;
    const uint address = (uint)(size_t)(tile + WARP_LANE % 16 * pitch + WARP_LANE / 16 * 4);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f.r[0]), "=r"(f.r[1]), "=r"(f.r[2]), "=r"(f.r[3])
                 : "r"(address)
                 : "memory");
    return f;
}
#define along_terms_bfloat16 along_terms_float16
#define along_terms_float32 along_terms_float16

inline Fragment along_places_float16(__local const uint *tile, const uint pitch) {
    Fragment f;
    const uint address = (uint)(size_t)(tile + (WARP_LANE % 8 + WARP_LANE / 16 * 8) * pitch + WARP_LANE / 8 % 2 * 4);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f.r[0]), "=r"(f.r[1]), "=r"(f.r[2]), "=r"(f.r[3])
                 : "r"(address)
                 : "memory");
    return f;
}
#define along_places_bfloat16 along_places_float16

inline Fragment along_places_float32(__local const uint *tile, const uint pitch) {
    Fragment f;
    tile += WARP_LANE % 4 * pitch + WARP_LANE / 4;
    f.r[0] = tile[0];
    f.r[1] = tile[8];
    f.r[2] = tile[4 * pitch];
    f.r[3] = tile[4 * pitch + 8];
    return f;
}

// A block of sums, rounded, as the left operand of the next product: 16 rows by 16 terms. No memory is needed here.
inline uint halves_of_floats(float low, float high) {
    uint bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

inline uint bfloats_of_floats(float low, float high) {
    uint bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

inline Fragment fragment_of_sums_float16(const float *sums, __local uint *scratch) {
    Fragment f;
#pragma unroll
    for (uint i = 0; i < 4; i++) f.r[i] = halves_of_floats(sums[2 * i], sums[2 * i + 1]);
    return f;
}

inline Fragment fragment_of_sums_bfloat16(const float *sums, __local uint *scratch) {
    Fragment f;
#pragma unroll
    for (uint i = 0; i < 4; i++) f.r[i] = bfloats_of_floats(sums[2 * i], sums[2 * i + 1]);
    return f;
}

#define MMA(SHAPE, TYPE, sums, first, left, right)                                                      \
    asm("mma.sync.aligned." SHAPE ".row.col.f32." TYPE "." TYPE ".f32 "                                 \
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                               \
        : "+f"((sums)[4 * (first)]), "+f"((sums)[4 * (first) + 1]), "+f"((sums)[4 * (first) + 2]),      \
          "+f"((sums)[4 * (first) + 3])                                                                 \
        : "r"((left).r[0]), "r"((left).r[1]), "r"((left).r[2]), "r"((left).r[3]), "r"((right).r[first]), \
          "r"((right).r[(first) + 2]))

inline void multiply_float16(float *sums, const Fragment left, const Fragment right) {
    MMA("m16n8k16", "f16", sums, 0, left, right);
    MMA("m16n8k16", "f16", sums, 1, left, right);
}

inline void multiply_bfloat16(float *sums, const Fragment left, const Fragment right) {
    MMA("m16n8k16", "bf16", sums, 0, left, right);
    MMA("m16n8k16", "bf16", sums, 1, left, right);
}

inline void multiply_float32(float *sums, const Fragment left, const Fragment right) {
    MMA("m16n8k8", "tf32", sums, 0, left, right);
    MMA("m16n8k8", "tf32", sums, 1, left, right);
}

inline Fragment rounded(const Fragment x) {
    Fragment f;
#pragma unroll
    for (uint i = 0; i < 4; i++) f.r[i] = x.r[i] + 0x1000u;  // the units cut the rest off
    return f;
}

inline Fragment high_part(const Fragment x) {
    Fragment f;
#pragma unroll
    for (uint i = 0; i < 4; i++) f.r[i] = rounded_bits(x.r[i]);
    return f;
}

inline Fragment low_part(const Fragment x, const Fragment high) {
    Fragment f;
#pragma unroll
    for (uint i = 0; i < 4; i++) f.r[i] = as_uint(as_float(x.r[i]) - as_float(high.r[i])) + 0x1000u;
    return f;
}

#else

#define WARP_BARRIER() barrier(CLK_LOCAL_MEM_FENCE)

enum { WHOLE_PART, HIGH_PART, LOW_PART };

typedef struct {
    __local const uint *tile;
    uint pitch;
    uint across;  // along places
    uint part;
} Fragment;

inline Fragment fragment_at(__local const uint *tile, const uint pitch, const uint across) {
    Fragment f;
    f.tile = tile;
    f.pitch = pitch;
    f.across = across;
    f.part = WHOLE_PART;
    return f;
}

#define along_terms_float16(tile, pitch) fragment_at(tile, pitch, 0)
#define along_terms_bfloat16(tile, pitch) fragment_at(tile, pitch, 0)
#define along_terms_float32(tile, pitch) fragment_at(tile, pitch, 0)
#define along_places_float16(tile, pitch) fragment_at(tile, pitch, 1)
#define along_places_bfloat16(tile, pitch) fragment_at(tile, pitch, 1)
#define along_places_float32(tile, pitch) fragment_at(tile, pitch, 1)

inline float part_of(float value, uint part) {
    const uint bits = as_uint(value);
    return part == HIGH_PART ? as_float(rounded_bits(bits)) : part == LOW_PART ? as_float(low_bits(bits)) : value;
}

#define ELEMENT_AND_PRODUCT(D, PER_WORD)                                                                          \
    inline float element_##D(const Fragment f, uint place, uint term) {                                           \
        __local const STORAGE(D) *p = (__local const STORAGE(D) *)f.tile;                                         \
        const uint at = f.across ? term * f.pitch * PER_WORD + place : place * f.pitch * PER_WORD + term;         \
        return part_of(LOAD(D, p, at), f.part);                                                                   \
    }                                                                                                             \
    inline void multiply_##D(float *sums, const Fragment left, const Fragment right) {                            \
        for (uint i = 0; i < SUMS; i++)                                                                           \
            for (uint term = 0; term < TERMS(D); term++)                                                          \
                sums[i] += element_##D(left, SUM_ROW(i), term) * element_##D(right, SUM_COLUMN(i), term);         \
    }
ELEMENT_AND_PRODUCT(float16, 2)
ELEMENT_AND_PRODUCT(bfloat16, 2)
ELEMENT_AND_PRODUCT(float32, 1)

// Here the block of sums goes through `scratch`, 128 words of the warp's own: WARP_BARRIER before its products, and
// after them.
#define FRAGMENT_THROUGH_MEMORY(D)                                                                   \
    inline Fragment fragment_of_sums_##D(const float *sums, __local uint *scratch) {                 \
        __local STORAGE(D) *p = (__local STORAGE(D) *)scratch;                                       \
        for (uint i = 0; i < SUMS; i++) STORE(D, sums[i], p, SUM_ROW(i) * 16 + SUM_COLUMN(i));       \
        return fragment_at(scratch, 8, 0);                                                           \
    }
FRAGMENT_THROUGH_MEMORY(float16)
FRAGMENT_THROUGH_MEMORY(bfloat16)

inline Fragment high_part(const Fragment x) {
    Fragment f = x;
    f.part = HIGH_PART;
    return f;
}

inline Fragment low_part(const Fragment x, const Fragment high) {
    Fragment f = x;
    f.part = LOW_PART;
    return f;
}

#define rounded(x) high_part(x)

#endif

// The units cut off what does not fit while they add, always towards zero. So that this does not pile up over many
// terms, a product of few terms starts at zero and is added to the sums by an ordinary, rounding addition (Ootomo and
// Yokota, 2022, "Recovering single precision accuracy from Tensor Cores").
inline void multiply_split(float *sums, const Fragment left_high, const Fragment left_low, const Fragment right_high,
                           const Fragment right_low) {
    float product[SUMS] = {0, 0, 0, 0, 0, 0, 0, 0};
    multiply_float32(product, left_low, right_high);
    multiply_float32(product, left_high, right_low);
    multiply_float32(product, left_high, right_high);
#pragma unroll
    for (uint i = 0; i < SUMS; i++) sums[i] += product[i];
}
#define MULTIPLY_SPLIT multiply_split

#endif
