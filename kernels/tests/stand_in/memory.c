#include "streams.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const size_t TOTAL = (size_t)8 << 30;
size_t taken;

/* Guard zones before and behind each allocation have these bytes, as long as nobody writes there. */
enum { GUARD = 256, GUARDED = 0xa5 };
typedef struct Allocation { unsigned char *start; size_t bytes; struct Allocation *next; } Allocation;
static Allocation *allocations;

static int intact(const unsigned char *zone) {
    for (int i = 0; i < GUARD; i++) if (zone[i] != GUARDED) return 0;
    return 1;
}

Status check_guards(void) {
    for (Allocation *one = allocations; one; one = one->next) {
        int before = !intact(one->start - GUARD);
        if (!before && intact(one->start + one->bytes)) continue;
        char text[200];
        const char *side = before ? "before" : "behind";
        snprintf(text, sizeof text, "the %d bytes %s the allocation of %zu bytes at %p were written", GUARD, side, one->bytes, one->start);
        return fail(ILLEGAL_ADDRESS, text);
    }
    return OK;
}

Status cuMemGetInfo_v2(size_t *free, size_t *total) {
    ONE_AT_A_TIME;
    if (!has_context()) return INVALID_CONTEXT;
    *free = TOTAL - taken;
    *total = TOTAL;
    return failed();
}
Status cuDeviceTotalMem_v2(size_t *bytes, int device) { return *bytes = TOTAL, OK; }

/* What is fresh is no number. */
Status cuMemAlloc_v2(Address *at, size_t bytes) {
    ONE_AT_A_TIME;
    if (!has_context()) return INVALID_CONTEXT;
    if (bytes == 0) return INVALID_VALUE;
    if (forbidden_in_capture()) return CAPTURE_UNSUPPORTED;
    unsigned char *zone = aligned_alloc(256, (bytes + 2 * GUARD + 255) / 256 * 256);
    memset(zone, GUARDED, bytes + 2 * GUARD);
    memset(zone + GUARD, 0xff, bytes);
    Allocation *own = malloc(sizeof *own);
    *own = (Allocation){zone + GUARD, bytes, allocations};
    allocations = own;
    taken += bytes;
    model_add_memory(own->start, bytes);
    *at = (Address)own->start;
    return failed();
}
Status cuMemFree_v2(Address at) {
    ONE_AT_A_TIME;
    Status status = forbidden_in_capture();
    if (status) return status;
    status = finish_all();
    Allocation **place = &allocations, *own;
    while (*place && (Address)(*place)->start != at) place = &(*place)->next;
    if (!(own = *place)) return INVALID_VALUE;
    *place = own->next;
    model_remove_memory(own->start);
    taken -= own->bytes;
    free(own->start - GUARD);
    free(own);
    return status;
}
Status cuMemHostAlloc(void **at, size_t bytes, unsigned flags) {
    *at = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return failed();
}
Status cuMemFreeHost(void *at) { return free(at), failed(); }

typedef struct { void *to; const void *from; size_t bytes; int value; } Copy;
static Status run_copy(void *data) {
    Copy *copy = data;
    memcpy(copy->to, copy->from, copy->bytes);
    return OK;
}
static Status run_fill(void *data) {
    Copy *fill = data;
    memset(fill->to, fill->value, fill->bytes);
    return OK;
}
static Status copy(Address to, Address from, size_t bytes, Stream *stream) {
    if (!has_context()) return INVALID_CONTEXT;
    Status status = give(stream, run_copy, &(Copy){.to = (void *)to, .from = (void *)from, .bytes = bytes}, sizeof(Copy));
    return status ? status : failed();
}
Status cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, Stream *s) { ONE_AT_A_TIME; return copy(to, from, bytes - faulty(), s); }
Status cuMemcpyHtoDAsync_v2(Address to, const void *from, size_t bytes, Stream *s) { ONE_AT_A_TIME; return copy(to, (Address)from, bytes, s); }
/* With STAND_IN_HANGS a copy of more bytes than a step reports never ends: that of a parameter or state. */
enum { REPORTED = 64 };
static Status hang(void *data) { for (;;) pause(); }
Status cuMemcpyDtoHAsync_v2(void *to, Address from, size_t bytes, Stream *s) {
    ONE_AT_A_TIME;
    if (bytes > REPORTED && getenv("STAND_IN_HANGS")) return give(s, hang, 0, 0);
    return copy((Address)to, from, bytes, s);
}
Status cuMemsetD8Async(Address to, unsigned char value, size_t bytes, Stream *stream) {
    ONE_AT_A_TIME;
    Status status = give(stream, run_fill, &(Copy){.to = (void *)to, .value = value, .bytes = bytes}, sizeof(Copy));
    return status ? status : failed();
}
