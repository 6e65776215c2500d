// Message passing between resident groups within a launch: each value and the number of its step are one store of 64
// bits, and readers wait for that number. Readers therefore need neither a fence nor a barrier between groups.
//
// The memory is a double buffer for two steps; its initial contents count as step 0. A value may be overwritten two
// steps later: a group can only have received all values of a step after every other group has read the values of the
// step before.

#ifndef POLYHAL_RECURRENT_EXCHANGE
#define POLYHAL_RECURRENT_EXCHANGE

// Stores a value of a step; steps count from 1.
FORCE_INLINE void publish(__global volatile ulong *place, const uint step, const float value) {
    *place = (ulong)step << 32 | as_uint(value);
}

// Waits for the values of a step, `rows` times `length`, and copies them to `count` positions of local memory, with
// rows at distance `pitch`. The loads are divided among the work-items of the group and overlap.
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
