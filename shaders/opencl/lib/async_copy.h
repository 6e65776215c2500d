// Copies of 16, 8 or 4 bytes from global to local memory that run beside the arithmetic and need no registers
// (NVIDIA, compute capability 8.0 and later), and their twin for ASYNC_COPIES 0, the default without TENSOR_CORES:
// plain copies, which are done at once.
//
// COPYn(to, from, wanted) fills the n bytes at `to` with those at `from`, or with zeros, and without reading `from`,
// unless `wanted`. Both addresses are aligned to n bytes. COPYn_OF(to, from, count) does so with the first `count` bytes,
// 0 to n, an even number, and fills the rest with zeros. COPIES_COMMIT closes a group of copies; COPIES_WAIT(n)
// waits until all groups of this work-item but the last n are there. For others to see them a barrier follows.
// With REORDERABLE_COPIES other loads may pass copies on their way to COPIES_WAIT.

#ifndef POLYHAL_COPIES
#define POLYHAL_COPIES

#ifndef TENSOR_CORES
#define TENSOR_CORES 0
#endif

#ifndef ASYNC_COPIES
#define ASYNC_COPIES TENSOR_CORES
#endif
#ifndef REORDERABLE_COPIES
#define REORDERABLE_COPIES 0
#endif

#if ASYNC_COPIES
#if REORDERABLE_COPIES
#define TOUCHED
#else
#define TOUCHED : "memory"
#endif
// A condition, and not a number of bytes: for the latter the compiler computes addresses anew, six instructions per
// copy.
#define COPY_BY(HOW, to, from, wanted)                                                                          \
    asm volatile("{ .reg .pred none; setp.eq.u32 none, %2, 0; cp.async." HOW ", none; }" ::"r"((uint)(size_t)(to)), \
                 "l"((ulong)(size_t)(from)), "r"((uint)(wanted)) TOUCHED)
#define COPY16(to, from, wanted) COPY_BY("cg.shared.global [%0], [%1], 16", to, from, wanted)
#define COPY8(to, from, wanted) COPY_BY("ca.shared.global [%0], [%1], 8", to, from, wanted)
#define COPY4(to, from, wanted) COPY_BY("ca.shared.global [%0], [%1], 4", to, from, wanted)
#define COPY_COUNTED(HOW, to, from, count)                                                               \
    asm volatile("cp.async." HOW ", %2;" ::"r"((uint)(size_t)(to)), "l"((ulong)(size_t)(from)), "r"((uint)(count)) \
                 TOUCHED)
#define COPY16_OF(to, from, count) COPY_COUNTED("cg.shared.global [%0], [%1], 16", to, from, count)
#define COPY8_OF(to, from, count) COPY_COUNTED("ca.shared.global [%0], [%1], 8", to, from, count)
#define COPY4_OF(to, from, count) COPY_COUNTED("ca.shared.global [%0], [%1], 4", to, from, count)
#define COPIES_COMMIT() asm volatile("cp.async.commit_group;" ::: "memory")
#define COPIES_WAIT(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")
#else
#define COPY_AS(T, to, from, wanted) \
    if (wanted) *(__local T *)(to) = *(__global const T *)(from); \
    else *(__local T *)(to) = (T)(0);
#define COPY16(to, from, wanted) COPY_AS(uint4, to, from, wanted)
#define COPY8(to, from, wanted) COPY_AS(uint2, to, from, wanted)
#define COPY4(to, from, wanted) COPY_AS(uint, to, from, wanted)
#define COPY_COUNTED(n, to, from, count)              \
    for (int h = 0; h < (n) / 2; h++)        \
        ((__local ushort *)(to))[h] = 2 * h < (count) ? ((__global const ushort *)(from))[h] : (ushort)0;
#define COPY16_OF(to, from, count) COPY_COUNTED(16, to, from, count)
#define COPY8_OF(to, from, count) COPY_COUNTED(8, to, from, count)
#define COPY4_OF(to, from, count) COPY_COUNTED(4, to, from, count)
#define COPIES_COMMIT()
#define COPIES_WAIT(n)
#endif

#endif
