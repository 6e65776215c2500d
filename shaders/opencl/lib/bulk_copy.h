// Bulk copies of boxes of a tensor to local memory by Hopper's copy engine (cp.async.bulk.tensor), also to all groups of a
// cluster, and the barriers in local memory that count their bytes (mbarrier).
//
// A tensor map describes a tensor of three axes of 16-bit elements, the first one contiguous, and the box of a copy: 64
// elements, `lines` lines and one plane, which is stored in the layout of lib/wgmma.h. Elements outside the tensor are
// zeros. Instructions of sm_90a are written as comments, see lib/wgmma.h.
//
// An image map describes images in the order (image, y, x, channel), or weights (filter, y, x, channel), and the box of a
// copy: 64 channels of a box of pixels, at every `step_y`-th and `step_x`-th pixel.

#ifndef POLYHAL_BULK_COPY
#define POLYHAL_BULK_COPY

#include "lib/clusters.h"

#if TENSOR_CORES

#define LOCAL_ADDRESS(p) ((uint)(size_t)(p))
// Parts of a shared copy that the group `rank` of a cluster starts.
#define FOR_PARTS(part, rank) const uint part = rank;

// Barriers. `count` arrivals and all expected bytes complete a phase; phases have parities 0, 1, 0, ...
static inline void barrier_init(__local ulong *b, uint count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(LOCAL_ADDRESS(b)), "r"(count) : "memory");
}
#define BARRIERS_SEEN() asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory")

static inline void barrier_expect(__local ulong *b, uint bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(LOCAL_ADDRESS(b)), "r"(bytes) : "memory");
}

// Arrives at the barrier at this address in the group `rank` of the cluster.
static inline void barrier_arrive(__local ulong *b, uint rank) {
#if CLUSTER > 1
    asm volatile(
        "{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %1; "
        "mbarrier.arrive.shared::cluster.b64 _, [remote]; }" ::"r"(LOCAL_ADDRESS(b)),
        "r"(rank)
        : "memory");
#else
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(LOCAL_ADDRESS(b)) : "memory");
#endif
}

static inline bool barrier_passed(__local ulong *b, uint parity) {
    uint passed;
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(passed)
        : "r"(LOCAL_ADDRESS(b)), "r"(parity)
        : "memory");
    return passed;
}
#define BARRIER_WAIT(b, parity) \
    while (!barrier_passed(b, parity)) {}

// Tensor maps.
#define MAP_WORDS 16

#define MAP_FIELD(KIND, TYPE, C, map, at, value)                                                                   \
    asm volatile("//sm_90a tensormap.replace.tile." KIND ".shared::cta.b1024." TYPE " [%0], " at "%1;" ::"r"(map), \
                 C(value)                                                                                          \
                 : "memory")
#define MAP_CONSTANT(KIND, map, value) \
    asm volatile("//sm_90a tensormap.replace.tile." KIND ".shared::cta.b1024.b32 [%0], " value ";" ::"r"(map) : "memory")

// Builds a map in local memory, aligned to 128 bytes, by one work-item. Strides are in bytes, multiples of 16.
static inline void build_map(__local ulong *to, __global const void *first, uint elements, uint lines, uint planes,
                             ulong line_bytes, ulong plane_bytes, uint box_lines) {
    const uint map = LOCAL_ADDRESS(to);
    MAP_FIELD("global_address", "b64", "l", map, "", (ulong)(size_t)first);
    MAP_FIELD("rank", "b32", "r", map, "", 2);
    MAP_FIELD("box_dim", "b32", "r", map, "0, ", 64);
    MAP_FIELD("box_dim", "b32", "r", map, "1, ", box_lines);
    MAP_FIELD("box_dim", "b32", "r", map, "2, ", 1);
    MAP_FIELD("global_dim", "b32", "r", map, "0, ", elements);
    MAP_FIELD("global_dim", "b32", "r", map, "1, ", lines);
    MAP_FIELD("global_dim", "b32", "r", map, "2, ", planes);
    MAP_FIELD("global_stride", "b64", "l", map, "0, ", line_bytes);
    MAP_FIELD("global_stride", "b64", "l", map, "1, ", plane_bytes);
    MAP_FIELD("element_stride", "b32", "r", map, "0, ", 1);
    MAP_FIELD("element_stride", "b32", "r", map, "1, ", 1);
    MAP_FIELD("element_stride", "b32", "r", map, "2, ", 1);
    MAP_CONSTANT("elemtype", map, "1");
    MAP_CONSTANT("interleave_layout", map, "0");
    MAP_CONSTANT("swizzle_mode", map, "3");
    MAP_CONSTANT("fill_mode", map, "0");
}

static inline void build_image_map(__local ulong *to, __global const void *first, uint channels, uint width, uint height,
                                   uint images, ulong across_bytes, ulong down_bytes, ulong image_bytes, uint box_width,
                                   uint box_height, uint box_images, uint step_x, uint step_y) {
    const uint map = LOCAL_ADDRESS(to);
    MAP_FIELD("global_address", "b64", "l", map, "", (ulong)(size_t)first);
    MAP_FIELD("rank", "b32", "r", map, "", 3);
    MAP_FIELD("box_dim", "b32", "r", map, "0, ", 64);
    MAP_FIELD("box_dim", "b32", "r", map, "1, ", box_width * step_x);
    MAP_FIELD("box_dim", "b32", "r", map, "2, ", box_height * step_y);
    MAP_FIELD("box_dim", "b32", "r", map, "3, ", box_images);
    MAP_FIELD("global_dim", "b32", "r", map, "0, ", channels);
    MAP_FIELD("global_dim", "b32", "r", map, "1, ", width);
    MAP_FIELD("global_dim", "b32", "r", map, "2, ", height);
    MAP_FIELD("global_dim", "b32", "r", map, "3, ", images);
    MAP_FIELD("global_stride", "b64", "l", map, "0, ", across_bytes);
    MAP_FIELD("global_stride", "b64", "l", map, "1, ", down_bytes);
    MAP_FIELD("global_stride", "b64", "l", map, "2, ", image_bytes);
    MAP_FIELD("element_stride", "b32", "r", map, "0, ", 1);
    MAP_FIELD("element_stride", "b32", "r", map, "1, ", step_x);
    MAP_FIELD("element_stride", "b32", "r", map, "2, ", step_y);
    MAP_FIELD("element_stride", "b32", "r", map, "3, ", 1);
    MAP_CONSTANT("elemtype", map, "1");
    MAP_CONSTANT("interleave_layout", map, "0");
    MAP_CONSTANT("swizzle_mode", map, "3");
    MAP_CONSTANT("fill_mode", map, "0");
}

// Copies a map to global memory by all 32 work-items of a warp.
#define PUBLISH_MAP(to, from)                                                                                     \
    asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], " \
                 "128;" ::"l"((ulong)(size_t)(to)),                                                               \
                 "r"(LOCAL_ADDRESS(from))                                                                         \
                 : "memory")
#define SEE_MAP(map)                                                                                         \
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"((ulong)(size_t)(map)) : "memory")

// Starts the copy of the box at (element, line, plane), which has `lines` lines as its map says.
static inline void copy_box(__local uint *to, __global const ulong *map, uint element, uint line, uint plane, uint lines,
                            __local ulong *b) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(
            LOCAL_ADDRESS(to)),
        "l"((ulong)(size_t)map), "r"(LOCAL_ADDRESS(b)), "r"(element), "r"(line), "r"(plane)
        : "memory");
}

// Starts the copy to the same place of all groups of the cluster, and counts its bytes at the barrier of each.
static inline void copy_box_to_cluster(__local uint *to, __global const ulong *map, uint element, uint line, uint plane,
                                       uint lines, __local ulong *b) {
#if CLUSTER > 1
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, "
        "%4, %5}], [%2], %6;" ::"r"(LOCAL_ADDRESS(to)),
        "l"((ulong)(size_t)map), "r"(LOCAL_ADDRESS(b)), "r"(element), "r"(line), "r"(plane),
        "h"((ushort)((1 << CLUSTER) - 1))
        : "memory");
#else
    copy_box(to, map, element, line, plane, lines, b);
#endif
}

// Starts the copy of the box at (channel, x, y, image), which may begin outside.
static inline void copy_image_box(__local uint *to, __global const ulong *map, int channel, int x, int y, int image,
                                  __local ulong *b) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
        "[%2];" ::"r"(LOCAL_ADDRESS(to)),
        "l"((ulong)(size_t)map), "r"(LOCAL_ADDRESS(b)), "r"(channel), "r"(x), "r"(y), "r"(image)
        : "memory");
}

static inline void copy_image_box_to_cluster(__local uint *to, __global const ulong *map, int channel, int x, int y,
                                             int image, __local ulong *b) {
#if CLUSTER > 1
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, "
        "%4, %5, %6}], [%2], %7;" ::"r"(LOCAL_ADDRESS(to)),
        "l"((ulong)(size_t)map), "r"(LOCAL_ADDRESS(b)), "r"(channel), "r"(x), "r"(y), "r"(image),
        "h"((ushort)((1 << CLUSTER) - 1))
        : "memory");
#else
    copy_image_box(to, map, channel, x, y, image, b);
#endif
}

#else

// A portable fallback: every group copies all parts by all its work-items, between two barriers.
#define FOR_PARTS(part, rank) for (uint part = 0; part < CLUSTER; part++)

typedef struct {
    __global const void *first;
    uint elements, lines, planes;
    ulong line_bytes, plane_bytes;
    uint box_lines;
} Tensor;

static inline void copy_box(__local uint *to, const Tensor t, uint element, uint line, uint plane, uint lines,
                            __local ulong *b) {
    for (uint i = get_local_id(0); i < lines * 64; i += get_local_size(0)) {
        const uint x = element + i % 64, y = line + i / 64;
        const ulong at = plane * (t.plane_bytes / 2) + y * (t.line_bytes / 2) + x;
        ((__local ushort *)to)[i / 64 * 64 + ((i % 64 / 8) ^ (i / 64 % 8)) * 8 + i % 8] =
            x < t.elements && y < t.lines && plane < t.planes ? ((__global const ushort *)t.first)[at] : (ushort)0;
    }
}
#define copy_box_to_cluster copy_box

typedef struct {
    __global const void *first;
    uint channels, width, height, images;
    ulong across_bytes, down_bytes, image_bytes;
    uint box_width, box_height, box_images, step_x, step_y;
} ImageTensor;

static inline void copy_image_box(__local uint *to, const ImageTensor t, int channel, int x, int y, int image,
                                  __local ulong *b) {
    const uint pixels = t.box_width * t.box_height * t.box_images;
    for (uint i = get_local_id(0); i < pixels * 64; i += get_local_size(0)) {
        const uint pixel = i / 64;
        const int c = channel + (int)(i % 64), at_x = x + (int)(pixel % t.box_width * t.step_x);
        const int at_y = y + (int)(pixel / t.box_width % t.box_height * t.step_y);
        const int at_image = image + (int)(pixel / t.box_width / t.box_height);
        const bool exists = (uint)c < t.channels && (uint)at_x < t.width && (uint)at_y < t.height && (uint)at_image < t.images;
        const long at = exists ? at_image * (long)(t.image_bytes / 2) + at_y * (long)(t.down_bytes / 2) +
                                     at_x * (long)(t.across_bytes / 2) + c
                               : 0;
        ((__local ushort *)to)[pixel * 64 + ((i % 64 / 8) ^ (pixel % 8)) * 8 + i % 8] =
            exists ? ((__global const ushort *)t.first)[at] : (ushort)0;
    }
}
#define copy_image_box_to_cluster copy_image_box

#endif

#endif
