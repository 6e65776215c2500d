// A collective among devices, of one or several processes, that access each other's memory. The host only launches it.
//
// Every participant has a window: memory that all participants write to. Work-group c of each participant is channel c,
// and exchanges data only with channel c of the others. In each step of a channel every participant writes a piece of
// its vector to its slot in the window of every other participant, sets its flag there to the number of the step, and
// waits until the flags of the others reach that number. Then it consumes the received pieces: it adds them to its own
// (REDUCES), or stores them in its target. Sums are taken in the order of the participants, half precision in float.
// Sending the next piece overlaps with that; with both REDUCES and GATHERS it begins after the sums are sent, and
// overlaps with storing the sums of the others.
//
// The slots are double-buffered, one set for even and one for odd steps: a participant that sets its flag to s has
// consumed the pieces of step s - 1, so the slots of that step are free in step s + 1. The number of the last step
// stays in the window; the next kernel continues from it. With REDUCES and GATHERS (all-reduce), one more step sends
// the sums to all participants. A participant that only sends does not wait for the others after its last piece: a
// waiting work-group occupies a compute unit.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef UNIT
#define UNIT uint
#endif
// Elements in 16 bytes.
#ifndef LANES
#define LANES 4
#endif
#ifndef OPERATION
#define OPERATION sum
#endif
#ifndef REDUCES
#define REDUCES 1
#endif
#ifndef GATHERS
#define GATHERS 1
#endif
// 1: all parts begin at multiples of 16 bytes.
#ifndef ALIGNED
#define ALIGNED 0
#endif
#ifndef MEMBERS
#define MEMBERS 2
#define WINDOW_PARAMETERS __global uchar *window0, __global uchar *window1
#define WINDOWS window0, window1
#endif
#ifndef GROUP
#define GROUP 64
#endif
#ifndef CHANNELS
#define CHANNELS 1
#endif
// Bytes.
#ifndef SLOT
#define SLOT 4096
#endif
// Vectors that a work-item reads before it writes them.
#ifndef BATCH
#define BATCH 4
#endif
#ifndef HAVE_PTX
#define HAVE_PTX 0
#endif
// 1: the device orders accesses by scope (PTX, sm_70 and later).
#ifndef SCOPED_FLAGS
#define SCOPED_FLAGS 0
#endif
#include "lib/dtypes.h"
#include "lib/combine.h"

#define LINE 32
#define COUNTER 31
#define HEADER ((CHANNELS + 1) * LINE * 4)

typedef union {
    uint4 bits;
    UNIT lanes[LANES];
} Vector;

typedef struct {
    ulong send_start[MEMBERS], send_size[MEMBERS], receive_start[MEMBERS], receive_size[MEMBERS];
    ulong result_start, longest, limit;
    uint me, piece, fatal, unused;
} Parts;

// The parts of the result that a participant keeps.
typedef struct {
    ulong send_start, send_size, receive_start;
} Own;

// Flags are written and read by devices that share no cache. Release order: a flag becomes visible after everything
// that the group wrote before its last barrier.
#if SCOPED_FLAGS
#define RAISE(flag, step) \
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"((ulong)(size_t)(flag)), "r"(step) : "memory")
#define READ_FLAG(value, flag) \
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"((ulong)(size_t)(flag)) : "memory")
#define AFTER_FLAGS() (void)0
#elif HAVE_PTX
#define RAISE(flag, step) \
    asm volatile("membar.sys; st.volatile.global.u32 [%0], %1;" ::"l"((ulong)(size_t)(flag)), "r"(step) : "memory")
#define READ_FLAG(value, flag) \
    asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(value) : "l"((ulong)(size_t)(flag)) : "memory")
#define AFTER_FLAGS() asm volatile("membar.sys;" ::: "memory")
#else
#define RAISE(flag, step) (mem_fence(CLK_GLOBAL_MEM_FENCE), atomic_xchg((volatile __global uint *)(flag), step))
#define READ_FLAG(value, flag) value = atomic_or((volatile __global uint *)(flag), 0u)
#define AFTER_FLAGS() mem_fence(CLK_GLOBAL_MEM_FENCE)
#endif
#if HAVE_PTX
#define NANOSECONDS(now) asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now))
#define GIVE_UP() asm volatile("trap;")
#else
// Without a clock: the approximate time of one iteration.
#define NANOSECONDS(now) now += 100
#define GIVE_UP() (void)0
#endif

#define SLOT_OF(window, step, receiver, sender) \
    ((__global uint4 *)((window) + HEADER +     \
                        (((ulong)channel * 2 + ((step) & 1)) * (MEMBERS - 1) + (sender) - ((sender) > (receiver))) * SLOT))
#define UNROLL _Pragma("unroll")
#define EACH_MEMBER UNROLL for (uint m = 0; m < MEMBERS; m++)
#define EACH_OTHER EACH_MEMBER if (m != me)
#define EACH_IN_BATCH UNROLL for (uint k = 0; k < BATCH; k++)
// Vectors of a piece of `size` elements, BATCH for each work-item.
#define BATCHES(size) for (uint first = lane * LANES; first < (size); first += BATCH * GROUP * LANES)
#define AT (first + k * GROUP * LANES)

FORCE_INLINE Vector load_vector(__global const UNIT *from, uint at, uint size) {
    Vector v;
    if (ALIGNED && at + LANES <= size) {
        v.bits = *(__global const uint4 *)(from + at);
    } else {
        v.bits = (uint4)(0);
        UNROLL for (uint k = 0; k < LANES; k++) if (at + k < size) v.lanes[k] = from[at + k];
    }
    return v;
}

FORCE_INLINE void store_vector(Vector v, __global UNIT *to, uint at, uint size) {
    if (ALIGNED && at + LANES <= size) {
        *(__global uint4 *)(to + at) = v.bits;
    } else {
        UNROLL for (uint k = 0; k < LANES; k++) if (at + k < size) to[at + k] = v.lanes[k];
    }
}

// Number of elements of a part in the piece that begins at `start`.
FORCE_INLINE uint piece_of(ulong size, ulong start, uint piece) {
    return start < size ? (uint)min(size - start, (ulong)piece) : 0u;
}

// Waits until a flag reaches `step`. After `limit` nanoseconds it sets `late`, which ends all waits of this device, and
// if `fatal` it traps.
FORCE_INLINE void wait_for(volatile __global uint *flag, uint step, volatile __global uint *late, ulong limit, uint fatal) {
    uint there;
    READ_FLAG(there, flag);
    ulong begin = 0;
    NANOSECONDS(begin);
    ulong now = begin;
    while ((int)(there - step) < 0 && !*late) {
        NANOSECONDS(now);
        if (now - begin > limit) {
            *late = 1;
            if (fatal) GIVE_UP();
        }
        READ_FLAG(there, flag);
    }
    AFTER_FLAGS();
}

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
collective_exchange(__global const UNIT *source, const ulong source_offset, __global UNIT *target, const ulong target_offset,
                    WINDOW_PARAMETERS, const Parts parts) {
    __global uchar *const windows[MEMBERS] = {WINDOWS};
    const uint channel = get_group_id(0), lane = get_local_id(0), me = parts.me;
    source += source_offset;
    target += target_offset;
    __global uchar *own = 0;
    EACH_MEMBER if (m == me) own = windows[m];
    __global uint *const flags = (__global uint *)own + channel * LINE;
    volatile __global uint *const late = (__global uint *)own + CHANNELS * LINE;
    uint step = flags[COUNTER];

// Writes the piece that begins at `start` to the slots of a step in the windows of the others.
#define PUSH(start, step)                                                                             \
    EACH_OTHER {                                                                                      \
        const uint size = piece_of(parts.send_size[m], start, parts.piece);                           \
        __global const UNIT *const from = source + parts.send_start[m] + (start);                     \
        __global uint4 *const slot = SLOT_OF(windows[m], step, m, me);                                \
        BATCHES(size) {                                                                               \
            Vector v[BATCH];                                                                          \
            EACH_IN_BATCH if (AT < size) v[k] = load_vector(from, AT, size);                          \
            EACH_IN_BATCH if (AT < size) slot[AT / LANES] = v[k].bits;                                \
        }                                                                                             \
    }
// Signals to the others that the piece of a step is complete and that all earlier pieces are consumed.
#define RAISE_FLAGS(step)          \
    barrier(CLK_GLOBAL_MEM_FENCE); \
    EACH_OTHER if (lane == m) RAISE((__global uint *)windows[m] + channel * LINE + me, step);
// Waits for that signal of all others for a step.
#define WAIT_FOR_FLAGS(step)                                                                     \
    EACH_OTHER if (lane == m) wait_for(flags + m, step, late, parts.limit, parts.fatal);         \
    barrier(CLK_GLOBAL_MEM_FENCE);
// Stores the pieces received in a step in the target.
#define TAKE(start, step)                                                                         \
    EACH_OTHER {                                                                                  \
        const uint size = piece_of(parts.receive_size[m], start, parts.piece);                    \
        __global const uint4 *const slot = SLOT_OF(own, step, me, m);                             \
        BATCHES(size) {                                                                           \
            Vector v[BATCH];                                                                      \
            EACH_IN_BATCH if (AT < size) v[k].bits = slot[AT / LANES];                            \
            EACH_IN_BATCH if (AT < size) store_vector(v[k], target + parts.receive_start[m] + (start), AT, size); \
        }                                                                                         \
    }

    const ulong stride = (ulong)get_num_groups(0) * parts.piece;
    Own mine = {0, 0, 0};
    EACH_MEMBER if (m == me) {
        mine.send_start = parts.send_start[m];
        mine.send_size = parts.send_size[m];
        mine.receive_start = parts.receive_start[m];
    }
    bool gives = false, gets = REDUCES && mine.send_size;
    EACH_OTHER {
        gives |= parts.send_size[m] > 0;
        gets |= GATHERS && parts.receive_size[m] > 0;
    }
    const bool waits = gets || !gives;
    ulong start = (ulong)channel * parts.piece;
    if (start < parts.longest) {
        WAIT_FOR_FLAGS(step)
        PUSH(start, step + 1)
        RAISE_FLAGS(step + 1)
    }
    for (; start < parts.longest; start += stride) {
        step++;
        const uint size = piece_of(mine.send_size, start, parts.piece);
#if !REDUCES
        if (mine.send_start != mine.receive_start || source != target) {
            BATCHES(size) {
                Vector v[BATCH];
                EACH_IN_BATCH if (AT < size) v[k] = load_vector(source + mine.send_start + start, AT, size);
                EACH_IN_BATCH if (AT < size) store_vector(v[k], target + mine.receive_start + start, AT, size);
            }
        }
#endif
        const bool more = start + stride < parts.longest;
        if (waits || more) {
            WAIT_FOR_FLAGS(step)
        }
#if !(REDUCES && GATHERS)
        if (more) {
            PUSH(start + stride, step + 1)  // in flight while the received piece is consumed
        }
#endif
#if REDUCES
        BATCHES(size) {
            Vector v[MEMBERS][BATCH];
            EACH_MEMBER {
                __global const uint4 *const slot = SLOT_OF(own, step, me, m == me ? (me + 1) % MEMBERS : m);
                EACH_IN_BATCH if (AT < size) {
                    if (m == me) v[m][k] = load_vector(source + mine.send_start + start, AT, size);
                    else v[m][k].bits = slot[AT / LANES];
                }
            }
            EACH_IN_BATCH if (AT < size) {
                Vector sum;
                UNROLL for (uint i = 0; i < LANES; i++) {
                    COMPUTE(DTYPE) value = LOAD(DTYPE, (const STORAGE(DTYPE) *)v[0][k].lanes, i);
                    UNROLL for (uint m = 1; m < MEMBERS; m++) {
                        const COMPUTE(DTYPE) other = LOAD(DTYPE, (const STORAGE(DTYPE) *)v[m][k].lanes, i);
                        value = COMBINE_SCALARS(value, other);
                    }
                    STORE(DTYPE, value, (STORAGE(DTYPE) *)sum.lanes, i);
                }
                store_vector(sum, target + parts.result_start + start, AT, size);
#if GATHERS
                EACH_OTHER SLOT_OF(windows[m], step + 1, m, me)[AT / LANES] = sum.bits;
#endif
            }
        }
#if GATHERS
        step++;
        RAISE_FLAGS(step)
        WAIT_FOR_FLAGS(step)
        if (more) {
            PUSH(start + stride, step + 1)
        }
        TAKE(start, step)
#endif
#else
        TAKE(start, step)
#endif
        if (more) {
            RAISE_FLAGS(step + 1)
        }
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
    if (lane == 0) flags[COUNTER] = step;
}
