// One elementwise op, or a fused group of them, over operands of any strides.
//
// The iteration space is rows of `inner` elements; a thread computes WIDTH neighbours of one row. The op-specific parts are
// generated (see lowering/pointwise/elementwise.py): PARAMETERS declares operands and scalars, LOCATE computes an address per
// operand, LOAD loads the inputs, COMPUTE evaluates one lane, STORE stores the outputs. The defaults add two contiguous arrays.

#ifndef WIDTH
#define WIDTH 4
#endif
// True if full vectors may be loaded and stored at once.
#ifndef ALIGNED
#define ALIGNED 1
#endif
#ifndef INDEX
#define INDEX uint32
#define OFFSET int32
#endif
// A single row needs no division.
#ifndef FLAT
#define FLAT 1
#endif
#ifndef BLOCK
#define BLOCK 256
#endif
#include "lib/functions.cuh"

#ifndef PARAMETERS
#define PARAMETERS const float32 *p0, const float32 *p1, float32 *p2
#define LOCATE const float32 *q0 = p0; const float32 *q1 = p1; float32 *q2 = p2;
#define LOAD const Vector<float32> v0 = load_contiguous(q0, at, remaining), v1 = load_contiguous(q1, at, remaining); Vector<float32> v2;
#define COMPUTE v2.at[j] = widen(v0.at[j]) + widen(v1.at[j]);
#define STORE store_contiguous(q2, at, remaining, v2);
#endif

template <typename T> using Vector = Pack<T, WIDTH>;

template <typename T> inline Vector<T> load_contiguous(const T *source, INDEX at, int remaining) {
    if (ALIGNED && remaining == WIDTH) return *(const Vector<T> *)(source + at);
    Vector<T> v;
#pragma unroll
    for (int j = 0; j < WIDTH; j++) v.at[j] = j < remaining ? source[at + j] : T();
    return v;
}

template <typename T> inline Vector<T> load_broadcast(const T *source) {
    Vector<T> v;
    const T element = *source;
#pragma unroll
    for (int j = 0; j < WIDTH; j++) v.at[j] = element;
    return v;
}

template <typename T> inline Vector<T> load_strided(const T *source, INDEX at, OFFSET step, int remaining) {
    Vector<T> v;
#pragma unroll
    for (int j = 0; j < WIDTH; j++) v.at[j] = j < remaining ? source[(OFFSET)(at + j) * step] : T();
    return v;
}

template <typename T> inline void store_contiguous(T *target, INDEX at, int remaining, const Vector<T> &v) {
    if (ALIGNED && remaining == WIDTH) {
        *(Vector<T> *)(target + at) = v;
        return;
    }
#pragma unroll
    for (int j = 0; j < WIDTH; j++)
        if (j < remaining) target[at + j] = v.at[j];
}

template <typename T> inline void store_strided(T *target, INDEX at, OFFSET step, int remaining, const Vector<T> &v) {
#pragma unroll
    for (int j = 0; j < WIDTH; j++)
        if (j < remaining) target[(OFFSET)(at + j) * step] = v.at[j];
}

KERNEL elementwise(PARAMETERS, const INDEX inner, const INDEX chunks, const INDEX items) {
    const INDEX item = (INDEX)blockIdx.x * BLOCK + threadIdx.x;
    if (item >= items) return;
#if FLAT
    const INDEX at = item * WIDTH;
#else
    INDEX row = item / chunks;
    const INDEX at = (item - row * chunks) * WIDTH;
#endif
    const int remaining = inner - at < WIDTH ? (int)(inner - at) : WIDTH;
    LOCATE
    LOAD
#pragma unroll
    for (int j = 0; j < WIDTH; j++) {
        COMPUTE
    }
    STORE
}
