// How resident groups pass values to each other within a launch: each value travels with the number of its step in one store
// of 64 bits, and readers wait for that number. Readers therefore need neither a fence nor a barrier between groups.
//
// The memory has room for two steps, and step 0 is what it holds at first. A value may be overwritten two steps later: a group
// has the values of a step only if every other group has read those of the step before.

#ifndef POLYHAL_RECURRENT_EXCHANGE
#define POLYHAL_RECURRENT_EXCHANGE

// Stores a value of a step; steps count from 1.
FORCE_INLINE void publish(__global volatile ulong *place, const uint step, const float value) {
    *place = (ulong)step << 32 | as_uint(value);
}

// Waits for the values of a step, `rows` times `length`, and copies them to `count` places of local memory, where rows are
// `pitch` apart. Every work-item of the group takes some, whose loads overlap.
#define GATHER(from, to, count, step, rows, length, pitch)                                                        \
    {                                                                                                             \
        ulong values[((count) + GROUP - 1) / GROUP];                                                              \
        bool waiting;                                                                                             \
        do {                                                                                                      \
            waiting = false;                                                                                      \
            _Pragma("unroll") for (uint i = 0; i < ((count) + GROUP - 1) / GROUP; i++) {                          \
                const uint line = (me + i * GROUP) / (pitch), at = (me + i * GROUP) % (pitch);                     \
                values[i] = line < (rows) && at < (length) ? (from)[line * (length) + at] : (ulong)(step) << 32; \
            }                                                                                                     \
            _Pragma("unroll") for (uint i = 0; i < ((count) + GROUP - 1) / GROUP; i++)                            \
                waiting |= (uint)(values[i] >> 32) != (step);                                                     \
        } while (waiting);                                                                                        \
        _Pragma("unroll") for (uint i = 0; i < ((count) + GROUP - 1) / GROUP; i++) {                              \
            if (me + i * GROUP < (count)) (to)[me + i * GROUP] = as_float((uint)values[i]);                       \
        }                                                                                                         \
    }

#endif
