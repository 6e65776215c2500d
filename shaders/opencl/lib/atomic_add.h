// Atomic addition to a float32 or a 32-bit integer in global memory. The order of additions is not fixed.

#ifndef POLYHAL_ATOMIC_ADD
#define POLYHAL_ATOMIC_ADD

#ifndef IS_FLOAT
#define IS_FLOAT 1
#endif
// 0: compare-and-swap; 1: NVIDIA's reduction instruction.
#ifndef PTX
#define PTX 0
#endif

#if IS_FLOAT
inline void add_atomically(volatile __global float *target, const float value) {
#if PTX
    asm volatile("red.global.add.f32 [%0], %1;" : : "l"(target), "f"(value) : "memory");
#else
    volatile __global uint *bits = (volatile __global uint *)target;
    uint seen = 0, expected;  // a guess saves a read: sums start at zero
    do {
        expected = seen;
        seen = atomic_cmpxchg(bits, expected, as_uint(as_float(expected) + value));
    } while (seen != expected);
#endif
}
#else
#define add_atomically atomic_add
#endif

#endif
