// Copies from global to local memory that go on while the work-item computes (NVIDIA, compute capability 8.0 and later). Copies
// issued between two calls of END_OF_COPIES make a batch; AWAIT_COPIES(n) waits until at most n batches of this work-item are
// under way, after which a barrier shows them to the group. Only for ASYNC_COPIES 1: elsewhere copies go through registers.

#ifndef POLYHAL_ASYNC_COPY
#define POLYHAL_ASYNC_COPY

#ifndef ASYNC_COPIES
#define ASYNC_COPIES 0
#endif

#if ASYNC_COPIES
// The copies themselves are not said to touch memory, so that other loads may pass them; AWAIT_COPIES is.
//
// Four bytes; zeros, and no access to `from`, unless `wanted`.
inline void copy_word(__local void *to, __global const void *from, const int wanted) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"((uint)(size_t)to), "l"(from), "r"(wanted ? 4 : 0));
}

// Sixteen bytes, aligned on both sides.
inline void copy_quad(__local void *to, __global const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint)(size_t)to), "l"(from));
}

#define END_OF_COPIES() asm volatile("cp.async.commit_group;")
#define AWAIT_COPIES(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")
#endif

#endif
