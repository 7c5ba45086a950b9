#include "warps.h"
#include "accesses.h"
#include "instructions.h"
#include <string.h>

/* One bit for each lane that waits for others of its warp. */
static unsigned arrived[MOST_THREADS / WARP];

static const char *const NAMES[] = {
    [MODEL_SYNC] = "__syncwarp()", [MODEL_VOTE] = "a vote", [MODEL_INDEX] = "__shfl_sync()", [MODEL_UP] = "__shfl_up_sync()", [MODEL_DOWN] = "__shfl_down_sync()",
    [MODEL_XOR] = "__shfl_xor_sync()", [MODEL_LDMATRIX] = "ldmatrix", [MODEL_MMA] = "mma",
};

void warps_begin(void) { memset(arrived, 0, sizeof arrived); }

static int same(const Thread *a, const Thread *b) { return a->kind == b->kind && a->mask == b->mask && a->line == b->line; }

int warps_misses(const Thread *waiting, const Thread *other) {
    int in_warp = arrived[waiting->number / WARP] >> waiting->number % WARP & 1;
    if (!in_warp) return !other->waits || arrived[other->number / WARP] >> other->number % WARP & 1;
    int named = other->number / WARP == waiting->number / WARP && waiting->mask >> other->number % WARP & 1;
    return named && !(other->waits && same(waiting, other));
}

/* The lane that a lane reads, as the CUDA C++ Programming Guide defines it under "Warp Shuffle Functions". */
static unsigned source(const Thread *thread) {
    unsigned lane = thread->number % WARP, width = thread->width, by = thread->argument, first = lane / width * width;
    switch (thread->kind) {
        case MODEL_INDEX: return first + by % width;
        case MODEL_UP: return lane - first >= by ? lane - by : lane;
        case MODEL_DOWN: return by < width && lane - first + by < width ? lane + by : lane;
        /* A lane reads lanes of groups before its own, and not of those behind it. */
        case MODEL_XOR: return (lane ^ by) / width * width <= first ? lane ^ by : lane;
        default: return lane;
    }
}

static void check_all_same(const Thread *warp, unsigned mask) {
    for (unsigned lane = 0; lane < WARP; lane++) {
        const Thread *thread = &warp[lane];
        if (mask >> lane & 1 && !same(thread, current))
            threads_fail(LAUNCH_FAILED, current, "divergence: it is at %s of line %d with mask %#x, and lane %u at %s of line %d with mask %#x",
                         NAMES[current->kind], current->line, mask, lane, NAMES[thread->kind], thread->line, thread->mask);
    }
}

/* All lanes of the mask have come: computes the results of each. What a lane reads from one that is not there is poison. */
static void complete(Thread *warp, unsigned mask) {
    unsigned votes = 0;
    check_all_same(warp, mask);
    if (current->kind >= MODEL_LDMATRIX) instructions_complete(warp, current->kind);
    for (unsigned lane = 0; lane < WARP; lane++)
        if (mask >> lane & 1 && warp[lane].value) votes |= 1u << lane;
    for (unsigned lane = 0; lane < WARP; lane++) {
        Thread *thread = &warp[lane];
        if (!(mask >> lane & 1)) continue;
        unsigned from = source(thread);
        thread->result = thread->kind == MODEL_VOTE ? votes : from < WARP && mask >> from & 1 ? warp[from].value : ~0ull;
        threads_wake(thread);
    }
}

uint64_t model_exchange(int line, ModelExchange kind, unsigned mask, uint64_t value, int argument, int width) {
    unsigned lane = current->number % WARP, first = current->number - lane;
    unsigned lanes = thread_count - first < WARP ? (1u << (thread_count - first)) - 1 : ~0u;
    if (!(mask >> lane & 1)) threads_fail(LAUNCH_FAILED, current, "%s of line %d: mask %#x lacks its own lane %u", NAMES[kind], line, mask, lane);
    if (mask & ~lanes)
        threads_fail(LAUNCH_FAILED, current, "deadlock: %s of line %d: mask %#x names lanes that the block lacks", NAMES[kind], line, mask);
    if (width < 1 || width > WARP || width & (width - 1))
        threads_fail(LAUNCH_FAILED, current, "%s of line %d: width %d is no power of two up to 32", NAMES[kind], line, width);
    current->kind = kind;
    current->mask = mask;
    current->value = value;
    current->argument = argument;
    current->width = width;
    threads_wait(NAMES[kind], line);
    unsigned *waiting = &arrived[first / WARP];
    *waiting |= 1u << lane;
    if ((*waiting & mask) == mask) {
        complete(&threads[first], mask);
        *waiting &= ~mask;
        if (kind == MODEL_SYNC) accesses_warp(first, mask);
    }
    Thread *thread = current;
    threads_switch();
    return thread->result;
}
