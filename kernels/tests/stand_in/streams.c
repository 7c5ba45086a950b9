#define _GNU_SOURCE
#include "streams.h"
#include "nccl.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static Stream *streams;

static pthread_mutex_t door = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
int enter_driver(void) { return pthread_mutex_lock(&door); }
void leave_driver(int *entered) { pthread_mutex_unlock(&door); }

static Status failure;
static char description[800];

int faulty(void) {
    static int known, faults;
    if (!known) faults = getenv("STAND_IN_FAULTS") != 0;
    known = 1;
    return faults;
}
Status failed(void) { return failure; }
Status fail(Status status, const char *text) {
    if (!failure) snprintf(description, sizeof description, "%s", text);
    return failure = failure ? failure : status;
}
Status cuGetErrorString(Status status, const char **text) {
    ONE_AT_A_TIME;
    *text = failure && status == failure ? description : "a stand-in's error";
    return OK;
}

static void begin_early(Stream *stream);
static Status queue(Stream *stream, const Work *work, const void *data, size_t bytes) {
    if (stream->capture || (work->kind == WAIT && work->event->capture)) return capture_work(stream, work, data, bytes);
    Work *own = malloc(sizeof *work + bytes);
    *own = *work;
    if (bytes) memcpy(own->data, data, bytes);
    if (stream->last) stream->last->next = own; else stream->first = own;
    stream->last = own;
    begin_early(stream);
    return failure;
}

Status give(Stream *stream, Status (*run)(void *data), const void *data, size_t bytes) {
    return queue(stream, &(Work){.kind = RUN, .run = run}, data, bytes);
}

/* STAND_IN_FORGET is `a b`: stream a does not wait for events of stream b, and does all else as early as CUDA allows, so that what is
 * missing comes out. Streams are numbered as they are created. */
static const int *forgetting(void) {
    static int known, pair[2] = {-1, -1};
    const char *text = getenv("STAND_IN_FORGET");
    if (!known && text) sscanf(text, "%d %d", &pair[0], &pair[1]);
    known = 1;
    return pair;
}

/* Does one piece of work of a stream, or of one that it waits for. Returns 0 if there is none, or it waits for other processes. */
static int step(Stream *stream) {
    Work *work = stream->first;
    if (!work) return 0;
    if (work->kind == WAIT && work->event->done < work->mark && !faulty()) return step(work->of);
    if (work->kind == RUN && !failure && work->run(work->data) == NOT_READY) return 0;
    stream->first = work->next;
    if (!stream->first) stream->last = 0;
    if (work->kind == RECORD) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        work->event->time = now.tv_sec * 1e3 + now.tv_nsec / 1e6;
        work->event->done = work->mark;
    }
    free(work);
    return 1;
}

/* Does something, of this stream if it can; streams run beside each other, so while it waits for other processes the others go on. */
static void go_on(Stream *stream) {
    nccl_looks();
    int moved = step(stream);
    for (Stream *other = streams; other && !moved; other = other->other) moved = step(other);
    if (moved) nccl_moved(); else nccl_wait();
}

static void begin_early(Stream *stream) { while (stream->number == forgetting()[0] && stream->first) go_on(stream); }

static Status settled(void) { return failure ? failure : check_guards(); }
static void finish(Stream *stream) { while (stream->first) go_on(stream); }
Status finish_all(void) {
    for (Stream *stream = streams; stream; stream = stream->other) finish(stream);
    return settled();
}

/* STAND_IN_WAITS names a file that gets a line for each wait: the numbers of the stream and of the one that it waits for.
 * STAND_IN_PRIORITIES names one that gets a line for each stream: its number and its priority. */
static void note_numbers(const char *variable, int first, int second) {
    const char *path = getenv(variable);
    FILE *file = path ? fopen(path, "a") : 0;
    if (file) fprintf(file, "%d %d\n", first, second), fclose(file);
}

enum { LEAST_PRIORITY = 0, GREATEST_PRIORITY = -5 };
Status cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    *least = LEAST_PRIORITY;
    *greatest = GREATEST_PRIORITY;
    return has_context() ? OK : INVALID_CONTEXT;
}
Status cuStreamCreateWithPriority(Stream **stream, unsigned flags, int priority) {
    ONE_AT_A_TIME;
    static int count;
    *stream = calloc(1, sizeof **stream);
    (*stream)->number = count++;
    (*stream)->priority = priority;
    (*stream)->other = streams;
    streams = *stream;
    note_numbers("STAND_IN_PRIORITIES", (*stream)->number, priority);
    return failure;
}
Status cuStreamCreate(Stream **stream, unsigned flags) { return cuStreamCreateWithPriority(stream, flags, LEAST_PRIORITY); }
Status cuStreamDestroy_v2(Stream *stream) {
    ONE_AT_A_TIME;
    finish(stream);
    for (Stream **at = &streams; *at; at = &(*at)->other) if (*at == stream) { *at = stream->other; break; }
    free(stream);
    return settled();
}
Status cuStreamSynchronize(Stream *stream) {
    ONE_AT_A_TIME;
    Status refused = forbidden_in_capture();
    return refused ? refused : (finish(stream), settled());
}
Status cuCtxSynchronize(void) {
    ONE_AT_A_TIME;
    Status refused = forbidden_in_capture();
    return refused ? refused : finish_all();
}
Status cuStreamWaitEvent(Stream *stream, Event *event, unsigned flags) {
    ONE_AT_A_TIME;
    if (event->stream) note_numbers("STAND_IN_WAITS", stream->number, event->stream->number);
    if (event->stream && stream->number == forgetting()[0] && event->stream->number == forgetting()[1]) return failure;
    return queue(stream, &(Work){.kind = WAIT, .event = event, .mark = event->recorded, .of = event->stream}, 0, 0);
}
enum { DISABLE_TIMING = 2 };
Status cuEventCreate(Event **event, unsigned flags) {
    ONE_AT_A_TIME;
    *event = calloc(1, sizeof **event);
    (*event)->untimed = (flags & DISABLE_TIMING) != 0;
    taken += faulty();
    return failure;
}
Status cuEventSynchronize(Event *event) {
    ONE_AT_A_TIME;
    Status refused = forbidden_in_capture();
    if (refused) return refused;
    while (event->done < event->recorded) go_on(event->stream);
    return settled();
}
/* A look without the lock, which a thread that waits for other processes holds. */
Status cuEventQuery(Event *event) { return event->done < event->recorded ? NOT_READY : OK; }
Status cuEventDestroy_v2(Event *event) {
    ONE_AT_A_TIME;
    finish_all();
    free(event);
    return failure;
}
Status cuEventRecord(Event *event, Stream *stream) {
    ONE_AT_A_TIME;
    event->stream = stream;
    event->capture = 0;
    uint64_t mark = stream->capture ? event->recorded : ++event->recorded;
    return queue(stream, &(Work){.kind = RECORD, .event = event, .mark = mark}, 0, 0);
}
Status cuEventElapsedTime_v2(float *milliseconds, Event *from, Event *to) {
    ONE_AT_A_TIME;
    if (from->untimed || to->untimed || !from->recorded || !to->recorded) return INVALID_HANDLE;
    if (from->done < from->recorded || to->done < to->recorded) return NOT_READY;
    *milliseconds = to->time - from->time + 1e-3;
    return failure;
}
