#define _GNU_SOURCE
#include "accesses.h"
#include "grid.h"
#include "threads.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>

/* The last accesses to a byte. An era ends with each barrier, block and launch, and begins with no access. */
typedef struct {
    uint32_t first_read_of_launch, read, written; /* eras */
    uint32_t read_time, write_time;               /* of the warp */
    uint32_t lanes;                               /* that read in this era, if all are of one warp */
    uint16_t reader, writer;
    uint32_t arriving; /* the era of the block in which a copy is on its way */
} Shadow;
enum { MANY_WARPS = 0xffff };

typedef struct { char *start; size_t bytes; Shadow *shadow; } Region;

static uint32_t era, block_era, launch_era;
/* A warp's time is one more than the number of its calls of `__syncwarp()`. A thread has seen what a lane did up to a time. */
static uint32_t synchronised[MOST_THREADS / WARP], seen[MOST_THREADS][WARP];
static Shadow shared_shadow[MOST_SHARED + MOST_SHARED_BY_CONSENT];
static Region *regions;
static unsigned region_count;
/* The allocation that was accessed last. */
static Region recent;
static struct { char *start; size_t bytes; } last_write;

static Shadow *map(size_t bytes) {
    if (bytes == 0 || bytes > RACES) return 0;
    Shadow *shadow = mmap(0, bytes * sizeof *shadow, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return shadow == MAP_FAILED ? 0 : shadow;
}

void model_add_memory(void *start, size_t bytes) {
    regions = realloc(regions, (region_count + 1) * sizeof *regions);
    recent = regions[region_count++] = (Region){start, bytes, map(bytes)};
}

void model_remove_memory(void *start) {
    unsigned i = 0;
    while (regions[i].start != start) i++;
    if (regions[i].shadow) munmap(regions[i].shadow, regions[i].bytes * sizeof(Shadow));
    regions[i] = regions[--region_count];
    recent = (Region){0};
}

void accesses_begin_launch(void) {
    launch_era = ++era;
    last_write.bytes = 0;
}
void accesses_begin_block(void) { block_era = ++era; }
void accesses_barrier(void) { era++; }
void accesses_warp(unsigned first, unsigned mask) {
    uint32_t time = ++synchronised[first / WARP], joined[WARP] = {0};
    for (unsigned lane = 0; lane < WARP; lane++)
        for (unsigned of = 0; of < WARP && mask >> lane & 1; of++)
            if (seen[first + lane][of] > joined[of]) joined[of] = seen[first + lane][of];
    for (unsigned lane = 0; lane < WARP; lane++) if (mask >> lane & 1) joined[lane] = time;
    for (unsigned lane = 0; lane < WARP; lane++) if (mask >> lane & 1) memcpy(seen[first + lane], joined, sizeof joined);
}
void model_spoil(void) {
    for (size_t i = 0; i < last_write.bytes; i++) last_write.start[i] ^= 0xff;
}

static uint32_t warp_time(void) { return synchronised[current->number / WARP] + 1; }

static int ordered(unsigned other, uint32_t time) {
    if (other / WARP != current->number / WARP) return 0;
    return other == current->number || seen[current->number][other % WARP] >= time;
}

/* A thread that read the byte in this era without order before the current thread's write, or -1. */
static int unordered_reader(const Shadow *shadow) {
    if (shadow->read != era) return -1;
    if (shadow->reader == MANY_WARPS) return MANY_WARPS;
    unsigned warp = shadow->reader / WARP * WARP;
    for (unsigned lane = 0; lane < WARP; lane++)
        if (shadow->lanes >> lane & 1 && !ordered(warp + lane, shadow->read_time) && warp + lane != current->number) return warp + lane;
    return -1;
}

static _Noreturn void race(int writes, const char *other, int with, const char *what, size_t offset) {
    char who[64] = "a thread of another block";
    if (with == MANY_WARPS) snprintf(who, sizeof who, "a thread of another warp");
    else if (with >= 0) snprintf(who, sizeof who, "thread (%u, %u, %u)", threads[with].index[0], threads[with].index[1], threads[with].index[2]);
    threads_fail(LAUNCH_FAILED, current, "race: it %s byte %zu of %s, which %s %s without a barrier between", writes ? "writes" : "reads", offset,
                 what, who, other);
}

/* `since`: the first era of which accesses count. */
static void check(Shadow *shadow, int writes, uint32_t since, const char *what, size_t offset) {
    unsigned number = current->number;
    if (shadow->arriving == block_era)
        threads_fail(LAUNCH_FAILED, current, "early: it %s byte %zu of %s, which an asynchronous copy is bringing", writes ? "writes" : "reads",
                     offset, what);
    if (shadow->written >= since && shadow->written < block_era) race(writes, "wrote", -1, what, offset);
    if (shadow->written == era && !ordered(shadow->writer, shadow->write_time)) race(writes, "wrote", shadow->writer, what, offset);
    if (writes) {
        if (shadow->first_read_of_launch >= since && shadow->first_read_of_launch < block_era) race(writes, "read", -1, what, offset);
        int reader = unordered_reader(shadow);
        if (reader >= 0) race(writes, "read", reader, what, offset);
        shadow->written = era;
        shadow->writer = number;
        shadow->write_time = warp_time();
        return;
    }
    if (shadow->first_read_of_launch < since) shadow->first_read_of_launch = era;
    if (shadow->read != era) {
        shadow->read = era;
        shadow->lanes = 0;
        shadow->reader = number;
    }
    if (shadow->reader / WARP != number / WARP) shadow->reader = MANY_WARPS;
    shadow->lanes |= 1u << number % WARP;
    shadow->read_time = warp_time();
}

static inline int inside(const char *at, size_t bytes, const char *start, size_t size) {
    size_t offset = at - start;
    return offset <= size && bytes <= size - offset;
}

static __attribute__((noinline)) void check_all(Shadow *shadow, size_t first, size_t bytes, int writes, uint32_t since, const char *what) {
    for (size_t i = first; i < first + bytes; i++) check(&shadow[i], writes, since, what, i);
}

static void find_region(const char *at, size_t bytes, int writes) {
    unsigned i = 0;
    while (i < region_count && !inside(at, bytes, regions[i].start, regions[i].bytes)) i++;
    if (i == region_count)
        threads_fail(ILLEGAL_ADDRESS, current, "it %s %zu bytes at %p, which is outside all memory", writes ? "writes" : "reads", bytes, at);
    recent = regions[i];
}

static void access_elsewhere(char *at, size_t bytes, int writes);

static inline void access_to(char *at, size_t bytes, int writes) {
    if (!inside(at, bytes, recent.start, recent.bytes)) return access_elsewhere(at, bytes, writes);
    if (recent.shadow) check_all(recent.shadow, at - recent.start, bytes, writes, launch_era, "an allocation");
    if (writes) last_write.start = at, last_write.bytes = bytes;
}

static __attribute__((noinline)) void access_elsewhere(char *at, size_t bytes, int writes) {
    const Piece fixed = grid_shared.fixed, dynamic = grid_shared.dynamic;
    if (inside(at, bytes, current->stack, STACK)) return;
    if (inside(at, bytes, fixed.start, fixed.bytes)) {
        check_all(shared_shadow, at - fixed.start, bytes, writes, block_era, "static shared memory");
    } else if (inside(at, bytes, dynamic.start, dynamic.bytes)) {
        check_all(shared_shadow + MOST_SHARED, at - dynamic.start, bytes, writes, block_era, "dynamic shared memory");
    } else if (!inside(at, bytes, grid_kernel->module, grid_kernel->module_end - grid_kernel->module)) {
        find_region(at, bytes, writes);
        access_to(at, bytes, writes);
    }
}

static Shadow *shared_at(const char *at) {
    const Piece fixed = grid_shared.fixed, dynamic = grid_shared.dynamic;
    if (inside(at, 16, fixed.start, fixed.bytes)) return shared_shadow + (at - fixed.start);
    return inside(at, 16, dynamic.start, dynamic.bytes) ? shared_shadow + MOST_SHARED + (at - dynamic.start) : 0;
}

void accesses_vector(Thread *thread, void *at, int kind, const char *instruction) {
    Thread *last = current;
    current = thread;
    if ((uintptr_t)at % 16) threads_fail(MISALIGNED_ADDRESS, thread, "%s: %p is no multiple of 16", instruction, at);
    if (kind & IN_SHARED && !shared_at(at)) threads_fail(ILLEGAL_ADDRESS, thread, "%s: %p is not in shared memory", instruction, at);
    if (kind & IN_GLOBAL) find_region(at, 16, 0);
    if (kind) access_to(at, 16, kind & WRITES);
    current = last;
}

void accesses_arriving(void *at, int begins) {
    Shadow *shadow = shared_at(at);
    for (int i = 0; i < 16; i++) shadow[i].arriving = begins ? block_era : 0;
}

static inline void aligned_access(char *at, size_t bytes, int writes) {
    if ((uintptr_t)at % bytes)
        threads_fail(MISALIGNED_ADDRESS, current, "it %s %zu bytes at %p, which is no multiple", writes ? "writes" : "reads", bytes, at);
    access_to(at, bytes, writes);
}

#define HOOKS(bytes) \
    void __tsan_read##bytes(void *at) { aligned_access(at, bytes, 0); } \
    void __tsan_write##bytes(void *at) { aligned_access(at, bytes, 1); } \
    void __tsan_unaligned_read##bytes(void *at) { access_to(at, bytes, 0); } \
    void __tsan_unaligned_write##bytes(void *at) { access_to(at, bytes, 1); }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
void __tsan_read_range(void *at, size_t bytes) { access_to(at, bytes, 0); }
void __tsan_write_range(void *at, size_t bytes) { access_to(at, bytes, 1); }
void *__tsan_memset(void *at, int value, size_t bytes) { return access_to(at, bytes, 1), memset(at, value, bytes); }
void *__tsan_memcpy(void *to, void *from, size_t bytes) {
    access_to(from, bytes, 0);
    access_to(to, bytes, 1);
    return memcpy(to, from, bytes);
}
void __tsan_init(void) {}
void __tsan_func_entry(void *from) {}
void __tsan_func_exit(void) {}

/* The other checks that compilers add: of alignment, whatever part of a vector is used, and of the bounds of arrays. What they state of
 * the place begins with these fields, and of the array they state no more that is needed. */
typedef struct { const char *file; uint32_t line, column; } Place;
void __ubsan_handle_type_mismatch_v1(const Place *place, void *at) {
    threads_fail(MISALIGNED_ADDRESS, current, "it accesses %p in line %u, which is not aligned for the type", at, place->line);
}
void __ubsan_handle_out_of_bounds(const Place *place, size_t index) {
    threads_fail(ILLEGAL_ADDRESS, current, "index %zd in line %u is outside its array", (ssize_t)index, place->line);
}
