#define _GNU_SOURCE
#include "streams.h"
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

static void step(Stream *stream) {
    Work *work = stream->first;
    if (!work) return;
    if (work->kind == WAIT && work->event->done < work->mark && !faulty()) return step(work->of);
    stream->first = work->next;
    if (!stream->first) stream->last = 0;
    if (work->kind == RUN && !failure) work->run(work->data);
    if (work->kind == RECORD) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        work->event->time = now.tv_sec * 1e3 + now.tv_nsec / 1e6;
        work->event->done = work->mark;
    }
    free(work);
}

static void begin_early(Stream *stream) { while (stream->number == forgetting()[0] && stream->first) step(stream); }

static Status settled(void) { return failure ? failure : check_guards(); }
static void finish(Stream *stream) { while (stream->first) step(stream); }
Status finish_all(void) {
    for (Stream *stream = streams; stream; stream = stream->other) finish(stream);
    return settled();
}

/* STAND_IN_WAITS names a file that gets a line for each wait: the two numbers. */
static void note_wait(const Stream *stream, const Event *event) {
    static FILE *file;
    const char *path = getenv("STAND_IN_WAITS");
    if (!path || !event->stream) return;
    if (!file) file = fopen(path, "w");
    if (file) fprintf(file, "%d %d\n", stream->number, event->stream->number), fflush(file);
}

Status cuStreamCreate(Stream **stream, unsigned flags) {
    ONE_AT_A_TIME;
    static int count;
    *stream = calloc(1, sizeof **stream);
    (*stream)->number = count++;
    (*stream)->other = streams;
    streams = *stream;
    return failure;
}
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
    note_wait(stream, event);
    if (event->stream && stream->number == forgetting()[0] && event->stream->number == forgetting()[1]) return failure;
    return queue(stream, &(Work){.kind = WAIT, .event = event, .mark = event->recorded, .of = event->stream}, 0, 0);
}
Status cuEventCreate(Event **event, unsigned flags) {
    ONE_AT_A_TIME;
    *event = calloc(1, sizeof **event);
    taken += faulty();
    return failure;
}
Status cuEventSynchronize(Event *event) {
    ONE_AT_A_TIME;
    Status refused = forbidden_in_capture();
    if (refused) return refused;
    while (event->done < event->recorded) step(event->stream);
    return settled();
}
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
    *milliseconds = to->time - from->time + 1e-3;
    return failure;
}
