// Atomic addition to a float32 or a 32-bit integer in global memory. The order of additions is not fixed.

#ifndef POLYHAL_ATOMIC_ADD
#define POLYHAL_ATOMIC_ADD

#ifndef IS_FLOAT
#define IS_FLOAT 1
#endif
// 0: compare-and-swap; 1: NVIDIA's reduction instruction; 2: cl_ext_float_atomics, in OpenCL C 2.0 or 3.0.
#ifndef FLOAT_ATOMICS
#define FLOAT_ATOMICS 0
#endif

// 1: NVIDIA's reduction instruction of four floats is available.
#ifndef QUAD_ATOMICS
#define QUAD_ATOMICS 0
#endif

#if IS_FLOAT
static inline void add_atomically(volatile __global float *target, const float value) {
#if FLOAT_ATOMICS == 1
    asm volatile("red.global.add.f32 [%0], %1;" : : "l"(target), "f"(value) : "memory");
#elif FLOAT_ATOMICS == 2
    atomic_fetch_add_explicit((volatile __global atomic_float *)target, value, memory_order_relaxed, memory_scope_device);
#else
    volatile __global uint *bits = (volatile __global uint *)target;
    uint seen = 0, expected;  // guessing zero, the initial value of sums, saves a read
    do {
        expected = seen;
        seen = atomic_cmpxchg(bits, expected, as_uint(as_float(expected) + value));
    } while (seen != expected);
#endif
}

// Four neighbors at an address aligned to them; one instruction on compute capability 9.0 or higher.
#if QUAD_ATOMICS
static inline void add_quad_atomically(volatile __global float *target, const float4 value) {
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
                 : : "l"(target), "f"(value.s0), "f"(value.s1), "f"(value.s2), "f"(value.s3) : "memory");
}
#endif
#else
#define add_atomically atomic_add
#endif

#endif
