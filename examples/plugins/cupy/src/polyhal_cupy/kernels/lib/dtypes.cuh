// Element types under Polyhal's names: their storage, and the register type in which they are computed.
//
// Register<T> is that type; widen() converts an element to it, narrow<T>() converts back. Half precision computes in float32
// and is rounded to nearest even when stored; small integers compute in 32 bits.

#ifndef POLYHAL_DTYPES
#define POLYHAL_DTYPES

// Kernels are compiled for blocks of BLOCK threads, which each file defines.
#define KERNEL extern "C" __global__ void __launch_bounds__(BLOCK)

struct bool_ {
    unsigned char bits;
};
struct float16 {
    unsigned short bits;
};
struct bfloat16 {
    unsigned short bits;
};
typedef unsigned char uint8;
typedef unsigned short uint16;
typedef unsigned int uint32;
typedef unsigned long long uint64;
typedef signed char int8;
typedef short int16;
typedef int int32;
typedef long long int64;
typedef float float32;
typedef double float64;

#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif

template <typename T> struct RegisterOf { typedef T type; };
template <> struct RegisterOf<bool_> { typedef int32 type; };
template <> struct RegisterOf<uint8> { typedef uint32 type; };
template <> struct RegisterOf<uint16> { typedef uint32 type; };
template <> struct RegisterOf<int8> { typedef int32 type; };
template <> struct RegisterOf<int16> { typedef int32 type; };
template <> struct RegisterOf<float16> { typedef float32 type; };
template <> struct RegisterOf<bfloat16> { typedef float32 type; };
template <typename T> using Register = typename RegisterOf<T>::type;

#include "lib/half.cuh"

template <typename T> inline Register<T> widen(T element) { return (Register<T>)element; }
inline int32 widen(bool_ element) { return element.bits; }
inline float32 widen(float16 element) { return float_of_half(element.bits); }
inline float32 widen(bfloat16 element) { return __uint_as_float((uint32)element.bits << 16); }

template <typename T> struct Narrow {
    static inline T of(Register<T> value) { return (T)value; }
};
template <> struct Narrow<bool_> {
    static inline bool_ of(int32 value) { return {(uint8)value}; }
};
template <> struct Narrow<float16> {
    static inline float16 of(float32 value) { return {half_of_float(value)}; }
};
template <> struct Narrow<bfloat16> {
    // A NaN keeps its sign and becomes quiet; rounding could turn it into infinity.
    static inline bfloat16 of(float32 value) {
        const uint32 bits = __float_as_uint(value);
        const uint32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
        return {(uint16)(value == value ? rounded : (bits >> 16) | 0x40u)};
    }
};
template <typename T> inline T narrow(Register<T> value) { return Narrow<T>::of(value); }

// N neighbours, loaded or stored in one transaction; the address must be a multiple of their total size.
template <typename T, int N> struct alignas(sizeof(T) * N) Pack {
    T at[N];
};

#endif
