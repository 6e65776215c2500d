// One elementwise op, or a fused group of them, over operands of any layout.
//
// The iteration space is rows of `inner` elements; a thread takes WIDTH neighbours of one row. What varies with the op
// is generated (see lowering/elementwise.py): PARAMETERS declares operands and numbers, LOCATE turns the row into an
// address per operand, LOAD reads the elements of the inputs, COMPUTE evaluates one lane, STORE writes. The defaults
// add two contiguous arrays.

#ifndef WIDTH
#define WIDTH 4
#endif
// Whether full vectors may be moved as such.
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
#define LOAD const Vector<float32> v0 = load_unit(q0, at, left), v1 = load_unit(q1, at, left); Vector<float32> v2;
#define COMPUTE v2.at[j] = widen(v0.at[j]) + widen(v1.at[j]);
#define STORE store_unit(q2, at, left, v2);
#endif

template <typename T> using Vector = Pack<T, WIDTH>;

template <typename T> inline Vector<T> load_unit(const T *from, INDEX at, int left) {
    if (ALIGNED && left == WIDTH) return *(const Vector<T> *)(from + at);
    Vector<T> v;
#pragma unroll
    for (int j = 0; j < WIDTH; j++) v.at[j] = j < left ? from[at + j] : T();
    return v;
}

template <typename T> inline Vector<T> load_splat(const T *from) {
    Vector<T> v;
    const T element = *from;
#pragma unroll
    for (int j = 0; j < WIDTH; j++) v.at[j] = element;
    return v;
}

template <typename T> inline Vector<T> load_step(const T *from, INDEX at, OFFSET step, int left) {
    Vector<T> v;
#pragma unroll
    for (int j = 0; j < WIDTH; j++) v.at[j] = j < left ? from[(OFFSET)(at + j) * step] : T();
    return v;
}

template <typename T> inline void store_unit(T *to, INDEX at, int left, const Vector<T> &v) {
    if (ALIGNED && left == WIDTH) {
        *(Vector<T> *)(to + at) = v;
        return;
    }
#pragma unroll
    for (int j = 0; j < WIDTH; j++)
        if (j < left) to[at + j] = v.at[j];
}

template <typename T> inline void store_step(T *to, INDEX at, OFFSET step, int left, const Vector<T> &v) {
#pragma unroll
    for (int j = 0; j < WIDTH; j++)
        if (j < left) to[(OFFSET)(at + j) * step] = v.at[j];
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
    const int left = inner - at < WIDTH ? (int)(inner - at) : WIDTH;
    LOCATE
    LOAD
#pragma unroll
    for (int j = 0; j < WIDTH; j++) {
        COMPUTE
    }
    STORE
}
