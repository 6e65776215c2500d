// Asynchronous copies of 16, 8 or 4 bytes from global to local memory (cp.async, NVIDIA, compute capability 8.0 and later):
// they overlap with arithmetic and need no registers. With ASYNC_COPIES 0, the default without TENSOR_CORES, they are
// plain copies.
//
// COPYn(to, from, condition) copies n bytes, or writes zeros without reading `from` if `condition` is false. Both addresses
// are aligned to n bytes. COPYn_OF(to, from, count) copies the first `count` bytes, an even number from 0 to n, and writes
// zeros behind them. COPIES_COMMIT closes a group of copies; COPIES_WAIT(n) waits until all groups of this work-item except
// the last n have completed. A barrier must follow before other work-items read the copies. With REORDERABLE_COPIES the
// compiler may move other loads across copies, up to COPIES_WAIT.

#ifndef POLYHAL_ASYNC_COPY
#define POLYHAL_ASYNC_COPY

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
#define MEMORY_CLOBBER
#else
#define MEMORY_CLOBBER : "memory"
#endif
// A predicate rather than a byte count: with a count the compiler recomputes addresses, six instructions per copy.
#define CP_ASYNC_IF(HOW, to, from, condition)                                                                       \
    asm volatile("{ .reg .pred none; setp.eq.u32 none, %2, 0; cp.async." HOW ", none; }" ::"r"((uint)(size_t)(to)), \
                 "l"((ulong)(size_t)(from)), "r"((uint)(condition)) MEMORY_CLOBBER)
#define COPY16(to, from, condition) CP_ASYNC_IF("cg.shared.global [%0], [%1], 16", to, from, condition)
#define COPY8(to, from, condition) CP_ASYNC_IF("ca.shared.global [%0], [%1], 8", to, from, condition)
#define COPY4(to, from, condition) CP_ASYNC_IF("ca.shared.global [%0], [%1], 4", to, from, condition)
#define CP_ASYNC_BYTES(HOW, to, from, count)                                                                       \
    asm volatile("cp.async." HOW ", %2;" ::"r"((uint)(size_t)(to)), "l"((ulong)(size_t)(from)), "r"((uint)(count)) \
                 MEMORY_CLOBBER)
#define COPY16_OF(to, from, count) CP_ASYNC_BYTES("cg.shared.global [%0], [%1], 16", to, from, count)
#define COPY8_OF(to, from, count) CP_ASYNC_BYTES("ca.shared.global [%0], [%1], 8", to, from, count)
#define COPY4_OF(to, from, count) CP_ASYNC_BYTES("ca.shared.global [%0], [%1], 4", to, from, count)
#define COPIES_COMMIT() asm volatile("cp.async.commit_group;" ::: "memory")
#define COPIES_WAIT(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")
#else
#define COPY_IF(T, to, from, condition)                              \
    if (condition) *(__local T *)(to) = *(__global const T *)(from); \
    else *(__local T *)(to) = (T)(0);
#define COPY16(to, from, condition) COPY_IF(uint4, to, from, condition)
#define COPY8(to, from, condition) COPY_IF(uint2, to, from, condition)
#define COPY4(to, from, condition) COPY_IF(uint, to, from, condition)
#define COPY_BYTES(n, to, from, count) \
    for (int h = 0; h < (n) / 2; h++)  \
        ((__local ushort *)(to))[h] = 2 * h < (count) ? ((__global const ushort *)(from))[h] : (ushort)0;
#define COPY16_OF(to, from, count) COPY_BYTES(16, to, from, count)
#define COPY8_OF(to, from, count) COPY_BYTES(8, to, from, count)
#define COPY4_OF(to, from, count) COPY_BYTES(4, to, from, count)
#define COPIES_COMMIT()
#define COPIES_WAIT(n)
#endif

#endif
