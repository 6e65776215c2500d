// Memory that is asked for before it is needed, where PREFETCH_DISTANCE is set (see lib/vectors.h): some lines of DTYPE at a time, while
// something else is computed.

#ifndef POLYHAL_FETCHES
#define POLYHAL_FETCHES

// PREFETCH_L2 is for what is packed later, into a cache behind the first, which holds what is in use; PREFETCH_L1 is for what is read
// soon, PREFETCH_L1_WRITE for what is written.
#if PREFETCH_DISTANCE && defined(__has_builtin)
#if __has_builtin(__builtin_prefetch)
#define PREFETCH_L2(p) __builtin_prefetch((const void *)(size_t)(p), 0, 1)
#define PREFETCH_L1(p) __builtin_prefetch((const void *)(size_t)(p), 0, 3)
#define PREFETCH_L1_WRITE(p) __builtin_prefetch((const void *)(size_t)(p), 1, 3)
#endif
#endif
#ifndef PREFETCH_L2
#define PREFETCH_L2(p)
#define PREFETCH_L1(p)
#define PREFETCH_L1_WRITE(p)
#endif
// Elements of the most common cache line.
#define LINE (64 / sizeof(STORAGE(DTYPE)))

// Lines of neighbours, `step` apart, of which some are dealt with at a time: those before `line`, and of that one the elements
// before `place`, are done.
typedef struct {
    __global const STORAGE(DTYPE) *from;
    long step;
    uint lines, length, at_once, line, place;
} Lines;

// Lines that are done after `times` calls of `prefetch_some`.
FORCE_INLINE Lines lines_of(__global const STORAGE(DTYPE) *from, const long step, const uint lines, const uint length,
                       const uint times) {
    const uint pieces = lines * ((length + LINE - 1) / LINE);
    const Lines found = {from, step, lines, length, (pieces + times - 1) / times, 0, 0};
    return found;
}

// Few at a time: a core waits for few cache lines at once, among them those that the computation needs now.
FORCE_INLINE void prefetch_some(__private Lines *some) {
    for (uint i = 0; i < some->at_once && some->line < some->lines; i++) {
        PREFETCH_L2(some->from + some->line * some->step + some->place);
        some->place += LINE;
        if (some->place >= some->length) {
            some->place = 0;
            some->line++;
        }
    }
}

#endif
