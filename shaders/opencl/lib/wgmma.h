// Products of 64 x WIDE blocks by a warpgroup (four warps) on Hopper's tensor cores (wgmma, compute capability 9.0), with
// both operands in local memory, and a portable fallback in plain C for TENSOR_CORES 0.
//
// Inline assembly is compiled for sm_90, which lacks these instructions, so they are written as PTX comments that begin
// with `//sm_90a `. backends/opencl_c/ptx.py uncomments them in the compiled program and assembles it for sm_90a.
//
// Do not include this header and lib/mma.h in one kernel: both define SUMS, SUM_ROW and SUM_COLUMN, with different
// layouts.
//
// An operand consists of 16-bit elements in lines of 128 bytes, aligned to 1024 bytes in all: if `k_major`, 64 terms of a
// row of a or column of b, else 64 rows or columns of a term, with the next 64 of them DEPTH lines further on. Its 16-byte
// chunks are swizzled against bank conflicts: chunk c of line l is stored at c ^ (l % 8). With DEPTH 32 the lines of a
// `k_major` operand have 64 bytes, and chunk c is stored at c ^ (l / 2 % 4).

#ifndef POLYHAL_WGMMA
#define POLYHAL_WGMMA

#ifndef TENSOR_CORES
#define TENSOR_CORES 0
#endif
// Columns of a block: 64, 128, 192 or 256.
#ifndef WIDE
#define WIDE 128
#endif
#include "lib/dtypes.h"

#define WARPGROUP 128
#define SUMS (WIDE / 2)
#define WARPGROUP_LANE (get_local_id(0) % WARPGROUP)
#define SUM_ROW(i) (WARPGROUP_LANE / 32 * 16 + WARPGROUP_LANE % 32 / 4 + (i) / 2 % 2 * 8)
#define SUM_COLUMN(i) (WARPGROUP_LANE % 4 * 2 + (i) % 2 + (i) / 4 * 8)
#define LINE 64
#define LINE_WORDS 32
#define SHORT_LINES(k_major) ((k_major) && DEPTH == 32)
#define WORD_OF(k_major, extent, line, at)                                                                 \
    (SHORT_LINES(k_major) ? (line) * (LINE_WORDS / 2) + (((at) / 8) ^ ((line) / 2 % 4)) * 4 + (at) % 8 / 2 \
                  : ((line) + ((k_major) ? 0 : (at) / LINE * DEPTH)) * LINE_WORDS +                        \
                        (((at) % LINE / 8) ^ ((line) % 8)) * 4 + (at) % 8 / 2)
// Words to the next 64 rows of a, or columns of b.
#define NEXT_64(k_major) (SHORT_LINES(k_major) ? 64 * LINE_WORDS / 2 : ((k_major) ? 64 : DEPTH) * LINE_WORDS)

#if TENSOR_CORES

#define SM_90A "//sm_90a "
// Makes copies visible to the tensor cores, which read local memory through another proxy.
#define WGMMA_SEE_COPIES() asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
#define WGMMA_BEGIN() asm volatile(SM_90A "wgmma.fence.sync.aligned;" ::: "memory")
#define WGMMA_COMMIT() asm volatile(SM_90A "wgmma.commit_group.sync.aligned;" ::: "memory")
#define WGMMA_WAIT(n) asm volatile(SM_90A "wgmma.wait_group.sync.aligned " #n ";" ::: "memory")

// The matrix descriptor of an operand: its address, the distance of the next 64 rows or columns and of the next eight
// lines, all in units of 16 bytes, and the swizzle. Source: PTX ISA, section "Matrix descriptor format".
static inline ulong matrix_descriptor(__local const uint *first, const bool k_major) {
    const uint address = (uint)(size_t)first;
    return (ulong)((address & 0x3ffffu) >> 4) | (ulong)(k_major ? 1 : DEPTH * 8) << 16 |
           (SHORT_LINES(k_major) ? (ulong)32 << 32 | (ulong)2 << 62 : (ulong)64 << 32 | (ulong)1 << 62);
}
// To the next 16 terms.
#define DESCRIPTOR_STEP(k_major) ((k_major) ? 2 : 128)

#define OUT8(s, i)                                                                                              \
    "+f"(s[i]), "+f"(s[i + 1]), "+f"(s[i + 2]), "+f"(s[i + 3]), "+f"(s[i + 4]), "+f"(s[i + 5]), "+f"(s[i + 6]), \
        "+f"(s[i + 7])
#define OUT64(s, i)                                                                                                  \
    OUT8(s, i), OUT8(s, i + 8), OUT8(s, i + 16), OUT8(s, i + 24), OUT8(s, i + 32), OUT8(s, i + 40), OUT8(s, i + 48), \
        OUT8(s, i + 56)
#define OUT32(s, i) OUT8(s, i), OUT8(s, i + 8), OUT8(s, i + 16), OUT8(s, i + 24)
#define NAMES32                                                                                       \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
    "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES64                                                                                       \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
    "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, " \
    "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, " \
    "%59, %60, %61, %62, %63"
#define NAMES96                                                                                          \
    NAMES64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, " \
    "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define NAMES128                                                                                           \
    NAMES64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, " \
    "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, "     \
    "%101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, "     \
    "%117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#if WIDE == 256
#define WGMMA(TYPE, s, add, left, right, transpose_left, transpose_right)                                      \
    asm volatile(SM_90A "{ .reg .pred p; setp.ne.b32 p, %130, 0; wgmma.mma_async.sync.aligned.m64n256k16.f32." \
                 TYPE "." TYPE " {" NAMES128 "}, %128, %129, p, 1, 1, %131, %132; }"                           \
                 : OUT64(s, 0), OUT64(s, 64)                                                                   \
                 : "l"(left), "l"(right), "r"(add), "n"(transpose_left), "n"(transpose_right))
#elif WIDE == 192
#define WGMMA(TYPE, s, add, left, right, transpose_left, transpose_right)                                     \
    asm volatile(SM_90A "{ .reg .pred p; setp.ne.b32 p, %98, 0; wgmma.mma_async.sync.aligned.m64n192k16.f32." \
                 TYPE "." TYPE " {" NAMES96 "}, %96, %97, p, 1, 1, %99, %100; }"                              \
                 : OUT64(s, 0), OUT32(s, 64)                                                                  \
                 : "l"(left), "l"(right), "r"(add), "n"(transpose_left), "n"(transpose_right))
#elif WIDE == 64
#define WGMMA(TYPE, s, add, left, right, transpose_left, transpose_right)                                    \
    asm volatile(SM_90A "{ .reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32." \
                 TYPE "." TYPE " {" NAMES32 "}, %32, %33, p, 1, 1, %35, %36; }"                              \
                 : OUT32(s, 0)                                                                               \
                 : "l"(left), "l"(right), "r"(add), "n"(transpose_left), "n"(transpose_right))
#else
#define WGMMA(TYPE, s, add, left, right, transpose_left, transpose_right)                                     \
    asm volatile(SM_90A "{ .reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32." \
                 TYPE "." TYPE " {" NAMES64 "}, %64, %65, p, 1, 1, %67, %68; }"                               \
                 : OUT64(s, 0)                                                                                \
                 : "l"(left), "l"(right), "r"(add), "n"(transpose_left), "n"(transpose_right))
#endif
// Comes between a wait and the first use of sums, which the compiler must not move before the wait.
#if WIDE == 256
#define WGMMA_READ(s) asm volatile("" : OUT64(s, 0), OUT64(s, 64)::"memory")
#elif WIDE == 192
#define WGMMA_READ(s) asm volatile("" : OUT64(s, 0), OUT32(s, 64)::"memory")
#elif WIDE == 64
#define WGMMA_READ(s) asm volatile("" : OUT32(s, 0)::"memory")
#else
#define WGMMA_READ(s) asm volatile("" : OUT64(s, 0)::"memory")
#endif
#define WGMMA_TYPE_float16 "f16"
#define WGMMA_TYPE_bfloat16 "bf16"

// Starts adding the product of the 64 rows at `left` and the WIDE columns at `right` over DEPTH terms; if `add` is 0, sums
// start at zero.
#define MULTIPLY_WIDE(sums, add, left, left_k_major, right, right_k_major)                                          \
    {                                                                                                               \
        const ulong x = matrix_descriptor(left, left_k_major), y = matrix_descriptor(right, right_k_major);         \
        _Pragma("unroll") for (uint step = 0; step < DEPTH / 16; step++)                                            \
            WGMMA(CONCAT(WGMMA_TYPE_, DTYPE), sums, (int)((add) || step), x + step * DESCRIPTOR_STEP(left_k_major), \
                  y + step * DESCRIPTOR_STEP(right_k_major), !(left_k_major), !(right_k_major));                    \
    }

#else

#define WGMMA_SEE_COPIES()
#define WGMMA_BEGIN()
#define WGMMA_COMMIT()
#define WGMMA_WAIT(n)
#define WGMMA_READ(s)

static inline float element_at(__local const uint *operand, const bool k_major, const uint mn, const uint term) {
    __local const STORAGE(DTYPE) *p = (__local const STORAGE(DTYPE) *)operand;
    const uint line = k_major ? mn : term, at = k_major ? term : mn;
    return LOAD(DTYPE, p, WORD_OF(k_major, 0, line, at) * 2 + at % 2);
}

#define MULTIPLY_WIDE(sums, add, left, left_k_major, right, right_k_major)    \
    for (uint i = 0; i < SUMS; i++) {                                         \
        if (!(add)) sums[i] = 0;                                              \
        for (uint term = 0; term < DEPTH; term++)                             \
            sums[i] += element_at(left, left_k_major, SUM_ROW(i), term) *     \
                       element_at(right, right_k_major, SUM_COLUMN(i), term); \
    }

#endif

#endif
