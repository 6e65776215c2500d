// Adding to a float32, or an integer of 32 bits, in global memory that others add to at the same time, in no fixed order.

#ifndef POLYHAL_ATOMIC_SUMS
#define POLYHAL_ATOMIC_SUMS

#ifndef IS_FLOAT
#define IS_FLOAT 1
#endif
// 0: by compare and swap; 1: by NVIDIA's reduction instruction.
#ifndef PTX
#define PTX 0
#endif

#if IS_FLOAT
inline void add_atomically(volatile __global float *target, const float value) {
#if PTX
    asm volatile("red.global.add.f32 [%0], %1;" : : "l"(target), "f"(value) : "memory");
#else
    volatile __global uint *bits = (volatile __global uint *)target;
    uint seen = 0, expected;  // a guess, and no read of what others write: sums begin with zeros
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
