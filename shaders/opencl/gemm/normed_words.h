// Pairs of 16-bit elements in words, multiplied by the weights of a norm (gemm/joined.h).

#ifndef POLYHAL_NORMED_WORDS
#define POLYHAL_NORMED_WORDS

#if TENSOR_CORES
// Products of pairs, each rounded once.
static inline uint product_float16(uint x, uint weights) {
    uint word;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(word) : "r"(x), "r"(weights));
    return word;
}
static inline uint product_bfloat16(uint x, uint weights) {
    uint word;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(word) : "r"(x), "r"(weights), "r"(0x80008000u));
    return word;
}
static inline uint pair_bfloat16(float low, float high) {
    uint word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}
static inline float half_of(ushort bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
static inline float2 values_float16(uint word) { return (float2)(half_of((ushort)word), half_of((ushort)(word >> 16))); }
#else
static inline uint pair_float16(float low, float high) {
    uint word;
    vstore_half2_rte((float2)(low, high), 0, (__private half *)&word);
    return word;
}
static inline uint pair_bfloat16(float low, float high) {
    return (uint)bfloat16_of_float(low) | (uint)bfloat16_of_float(high) << 16;
}
static inline float2 values_float16(uint word) { return vload_half2(0, (__private const half *)&word); }
#endif
static inline float2 values_bfloat16(uint word) { return (float2)(as_float(word << 16), as_float(word & 0xffff0000)); }
#if !TENSOR_CORES
static inline uint product_float16(uint x, uint weights) {
    const float2 products = values_float16(x) * values_float16(weights);
    return pair_float16(products.s0, products.s1);
}
static inline uint product_bfloat16(uint x, uint weights) {
    const float2 products = values_bfloat16(x) * values_bfloat16(weights);
    return pair_bfloat16(products.s0, products.s1);
}
#endif

// The elements of a word times `weights`, rounded; adds their squares to `squares`.
static inline uint normed_word(uint word, uint weights, float *squares) {
    const float2 x = CONCAT(values_, DTYPE)(word);
    *squares += x.s0 * x.s0 + x.s1 * x.s1;
    return CONCAT(product_, DTYPE)(word, weights);
}
static inline uint4 normed_words(uint4 x, uint4 weights, float *squares) {
    return (uint4)(normed_word(x.s0, weights.s0, squares), normed_word(x.s1, weights.s1, squares),
                   normed_word(x.s2, weights.s2, squares), normed_word(x.s3, weights.s3, squares));
}

#endif
