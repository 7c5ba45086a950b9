#include "threads.h"
#include "accesses.h"
#include "grid.h"
#include "instructions.h"
#include "order.h"
#include "warps.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

Thread threads[MOST_THREADS];
unsigned thread_count;
Thread *current;

static Fibre caller;
static Status status;
static void (*body)(void);
/* One bit for each thread that does not wait, at the image of its number. */
static uint64_t ready[MOST_THREADS / 64];
static unsigned last, returned;
static struct { unsigned arrived, counted, result; int line; } barrier;

static Thread *thread_at(unsigned image) { return &threads[order_image(image, thread_count)]; }

void threads_wake(Thread *thread) {
    unsigned image = order_image(thread->number, thread_count);
    thread->waits = 0;
    ready[image / 64] |= 1ull << image % 64;
}

static void rest(void) {
    unsigned image = order_image(current->number, thread_count);
    ready[image / 64] &= ~(1ull << image % 64);
}

void threads_wait(const char *where, int line) {
    current->waits = where;
    current->line = line;
    rest();
}

/* The first thread from the order's next place on that does not wait, or 0. */
static Thread *next(void) {
    unsigned from = order_next(last, thread_count), words = (thread_count + 63) / 64;
    uint64_t bits = ready[from / 64] & ~0ull << from % 64;
    for (unsigned i = 0, word = from / 64; i <= words; i++) {
        if (bits) return thread_at(last = 64 * word + __builtin_ctzll(bits));
        word = (word + 1) % words;
        bits = ready[word];
    }
    return 0;
}

void threads_fail(Status why, const Thread *thread, const char *format, ...) {
    char text[512];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    grid_describe_failure(thread->index, text);
    status = why;
    Fibre dropped;
    fibre_switch(&dropped, &caller);
    __builtin_unreachable();
}

/* All threads wait or have returned: that is an error about the first that waits. */
static _Noreturn void deadlock(void) {
    Thread *waiting = threads, *missing = threads;
    while (!waiting->waits) waiting++;
    while (!warps_misses(waiting, missing)) missing++;
    char place[64];
    snprintf(place, sizeof place, "waits at %s of line %d", missing->waits, missing->line);
    threads_fail(LAUNCH_FAILED, waiting, "deadlock: it waits at %s of line %d for thread (%u, %u, %u), which %s", waiting->waits,
                 waiting->line, missing->index[0], missing->index[1], missing->index[2], missing->returned ? "has returned" : place);
}

void threads_switch(void) {
    Thread *from = current;
    current = next();
    if (!current && returned == thread_count) fibre_switch(&from->fibre, &caller);
    if (!current) {
        current = from;
        deadlock();
    }
    if (current != from) fibre_switch(&from->fibre, &current->fibre);
}

static void run(void) {
    body();
    current->returned = 1;
    returned++;
    rest();
    threads_switch();
}

unsigned model_barrier(int line, int counts) {
    if (barrier.arrived && barrier.line != line)
        threads_fail(LAUNCH_FAILED, current, "divergence: it is at the barrier of line %d, and another thread at that of line %d", line,
                     barrier.line);
    barrier.line = line;
    barrier.counted += counts;
    threads_wait("__syncthreads()", line);
    if (++barrier.arrived == thread_count) {
        barrier.result = barrier.counted;
        barrier.arrived = barrier.counted = 0;
        accesses_barrier();
        for (unsigned i = 0; i < thread_count; i++) threads_wake(&threads[i]);
    }
    threads_switch();
    return barrier.result;
}

Status threads_run(Extent block, void (*call)(void)) {
    thread_count = block.x * block.y * block.z;
    body = call;
    status = OK;
    returned = 0;
    barrier.arrived = barrier.counted = 0;
    memset(ready, 0, sizeof ready);
    for (unsigned i = 0; i < thread_count; i++) {
        Thread *thread = &threads[i];
        thread->number = i;
        thread->index[0] = i % block.x;
        thread->index[1] = i / block.x % block.y;
        thread->index[2] = i / block.x / block.y;
        thread->returned = 0;
        thread->stack = fibre_stack(i);
        /* Stacks that end at equal places of their pages would contend for the same lines of the cache. */
        fibre_begin(&thread->fibre, thread->stack, STACK - i % 16 * 256, run);
        threads_wake(thread);
    }
    warps_begin();
    instructions_begin();
    last = thread_count - 1;
    current = next();
    fibre_switch(&caller, &current->fibre);
    return status;
}
