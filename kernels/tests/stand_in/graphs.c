#include "streams.h"
#include "nccl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What each stream was given, by stream; the first is the one that the capture began with. */
enum { TRACKS = 64 };
typedef struct { Stream *stream; Work *first, *last, *next; } Track;
struct Capture { Track tracks[TRACKS]; int count, broken, running; };
typedef Capture Graph;

static __thread Capture *capturing;

Status forbidden_in_capture(void) {
    if (!capturing) return OK;
    capturing->broken = 1;
    return CAPTURE_UNSUPPORTED;
}

static Track *track_of(Capture *capture, const Stream *stream) {
    for (int i = 0; i < capture->count; i++) if (capture->tracks[i].stream == stream) return &capture->tracks[i];
    return 0;
}

static void add(Capture *capture, Stream *stream, const Work *work, const void *data, size_t bytes) {
    Track *track = track_of(capture, stream);
    Work *own = malloc(sizeof *own + bytes);
    *own = *work;
    if (bytes) memcpy(own->data, data, bytes);
    nccl_captured(own->run, own->data, 1);
    if (track->last) track->last->next = own; else track->first = own;
    track->last = own;
}

static Status join(Capture *capture, Stream *stream) {
    if (capture->count == TRACKS) return OUT_OF_RESOURCES;
    capture->tracks[capture->count++] = (Track){.stream = stream};
    stream->capture = capture;
    return OK;
}

Status capture_work(Stream *stream, const Work *work, const void *data, size_t bytes) {
    Work own = *work;
    if (work->kind == WAIT) {
        if (!work->event->capture) return CAPTURE_ISOLATION;
        if (work->event->capture != capturing) return CAPTURED_EVENT;
        Status status = stream->capture ? OK : join(capturing, stream);
        if (status) return status;
        own.event = work->event->captured;
    }
    if (work->kind == RECORD) {
        own.event = calloc(1, sizeof *own.event);
        own.event->stream = stream;
        work->event->capture = stream->capture;
        work->event->captured = own.event;
    }
    add(stream->capture, stream, &own, data, bytes);
    return OK;
}

Status cuStreamBeginCapture_v2(Stream *stream, int mode) {
    ONE_AT_A_TIME;
    if (capturing || stream->capture) return INVALID_VALUE;
    capturing = calloc(1, sizeof *capturing);
    return join(capturing, stream);
}

/* True if a stream's last work is a record, and a stream that is joined waits for it. */
static int is_joined(const Graph *graph, const Track *track, const int *joined) {
    if (track->last->kind != RECORD) return 0;
    for (int i = 0; i < graph->count; i++)
        for (const Work *work = graph->tracks[i].first; joined[i] && work; work = work->next)
            if (work->kind == WAIT && work->event == track->last->event) return 1;
    return 0;
}
static int all_joined(const Graph *graph) {
    int joined[TRACKS] = {1}, count = 1;
    for (int round = 0; round < graph->count; round++)
        for (int i = 1; i < graph->count; i++)
            if (!joined[i] && is_joined(graph, &graph->tracks[i], joined)) joined[i] = 1, count++;
    return count == graph->count;
}

Status cuStreamEndCapture(Stream *stream, Graph **graph) {
    ONE_AT_A_TIME;
    Capture *own = capturing;
    if (!own || own->tracks[0].stream != stream) return INVALID_VALUE;
    for (int i = 0; i < own->count; i++) own->tracks[i].stream->capture = 0;
    capturing = 0;
    *graph = own;
    return own->broken ? CAPTURE_INVALIDATED : all_joined(own) ? failed() : CAPTURE_UNJOINED;
}
Status cuGraphInstantiateWithFlags(Graph **instance, Graph *graph, unsigned long long flags) { return *instance = graph, failed(); }
Status cuGraphExecDestroy(Graph *instance) { return failed(); }
Status cuGraphDestroy(Graph *graph) {
    ONE_AT_A_TIME;
    finish_all();
    for (int i = 0; i < graph->count; i++)
        for (Work *work = graph->tracks[i].first, *next; work; work = next) {
            next = work->next;
            if (work->kind == RECORD) free(work->event);
            nccl_captured(work->run, work->data, -1);
            free(work);
        }
    free(graph);
    return failed();
}

/* Goes on with a stream until an event is recorded, or to its end. Others go on as far as it waits for them. Returns 0 if it waits for
 * other processes. */
static int go_on(Graph *graph, Track *track, const Event *until) {
    while (track->next && !(until && until->done)) {
        Work *work = track->next;
        if (work->kind == WAIT && !work->event->done && !faulty() && !go_on(graph, track_of(graph, work->event->stream), work->event)) return 0;
        if (work->kind == RUN && !failed() && work->run(work->data) == NOT_READY) return 0;
        track->next = work->next;
        if (work->kind == RECORD) work->event->done = 1;
    }
    return 1;
}
static Status run_graph(void *data) {
    Graph *graph = *(Graph **)data;
    for (int i = 0; i < graph->count && !graph->running; i++) {
        Track *track = &graph->tracks[i];
        track->next = track->first;
        for (Work *work = track->first; work; work = work->next) if (work->kind == RECORD) work->event->done = 0;
    }
    graph->running = 0;
    for (int i = 0; i < graph->count; i++) graph->running |= !go_on(graph, &graph->tracks[i], 0);
    return graph->running ? NOT_READY : OK;
}
/* STAND_IN_GRAPHS names a file that gets a line for each launch of a graph. */
Status cuGraphLaunch(Graph *graph, Stream *stream) {
    ONE_AT_A_TIME;
    const char *path = getenv("STAND_IN_GRAPHS");
    FILE *file = path ? fopen(path, "a") : 0;
    if (file) fprintf(file, "%d\n", graph->count), fclose(file);
    Status status = give(stream, run_graph, &graph, sizeof graph);
    return status ? status : failed();
}
