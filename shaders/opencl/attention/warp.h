// Warp shuffles and special functions for attention kernels, on devices with PTX.

#ifndef POLYHAL_ATTENTION_WARP
#define POLYHAL_ATTENTION_WARP

#ifndef TENSOR_CORES
#define TENSOR_CORES 0
#endif

#if TENSOR_CORES
static inline float fast_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// The number of the lane whose id differs in the bits of `distance`.
static inline float shuffle_xor(float value, uint distance) {
    float other;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(other) : "f"(value), "r"(distance));
    return other;
}
#else
#define fast_exp2 exp2
#endif

#endif
