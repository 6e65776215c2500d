// Programmatic dependent launch: a kernel may start before the end of the one in front of it in a CUDA graph or stream, whose
// results it reads after AWAIT_INPUTS. In front of that it only reads arguments that are bound with `early`, which no kernel of
// the graph in front of it writes; in a stream, a kernel with such arguments starts after the one in front of it. START_NEXT, in every work-item, lets the kernel behind start. Every kernel with
// START_NEXT has AWAIT_INPUTS in all work-items that read or write memory, so that one that has ended follows all before it.
// The comments become instructions by the CUDA backend for compute capability 9.0 and later; they are none elsewhere.
// PREFETCH and PREFETCH_RANGE bring a line, or `bytes` contiguous bytes, to the second-level cache, where no value is out of date:
// what they read may still be written. The range is asked for by one work-item, and moves without others.
// Source: PTX ISA, "griddepcontrol".

#ifndef POLYHAL_DEPENDENT_LAUNCH
#define POLYHAL_DEPENDENT_LAUNCH

// Set for every program of a device that takes inline PTX.
#ifndef HAVE_PTX
#define HAVE_PTX 0
#endif

#if HAVE_PTX
#define START_NEXT asm volatile("//cuda griddepcontrol.launch_dependents;");
#define AWAIT_INPUTS asm volatile("//cuda griddepcontrol.wait;" : : : "memory");
#define PREFETCH(address) asm volatile("prefetch.global.L2 [%0];" : : "l"((ulong)(size_t)(address)));
#define PREFETCH_RANGE(address, bytes)                                               \
    asm volatile("//cuda cp.async.bulk.prefetch.L2.global [%0], %1;"                 \
                 :                                                                   \
                 : "l"(((ulong)(size_t)(address) + 15) & ~15ul), "r"(((uint)(bytes) - 15) & ~15u));
#else
#define START_NEXT ;
#define AWAIT_INPUTS ;
#define PREFETCH(address) ;
#define PREFETCH_RANGE(address, bytes) ;
#endif

#endif
