// Loads and stores of the first lanes of a vector, where a row ends within it.

#ifndef POLYHAL_RECURRENT_CPU_LANES
#define POLYHAL_RECURRENT_CPU_LANES

#if WIDTH == 1
#define load_lanes(p, lanes) (*(p))
#define store_lanes(v, p, lanes) (*(p) = (v))
#else
FORCE_INLINE V load_lanes(__global const float *p, const uint lanes) {
    if (lanes == WIDTH) return LOADV(float32, p);
    V v = (V)(0);
    for (uint i = 0; i < lanes; i++) ((__private float *)&v)[i] = p[i];
    return v;
}

FORCE_INLINE void store_lanes(const V v, __global float *p, const uint lanes) {
    if (lanes == WIDTH) {
        STOREV(float32, v, p);
        return;
    }
    for (uint i = 0; i < lanes; i++) p[i] = ((__private const float *)&v)[i];
}
#endif

#endif
