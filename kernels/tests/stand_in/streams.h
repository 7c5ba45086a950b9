/* Streams and events. */
#ifndef STREAMS_H
#define STREAMS_H
#include "driver.h"

typedef struct Capture Capture;

typedef struct Event {
    Stream *stream;
    uint64_t recorded, done;
    /// When it was last reached, in milliseconds; nobody asks if it is untimed.
    double time;
    int untimed;
    /* If it was last recorded while a stream was captured: the capture, and the event that stands for it there. */
    Capture *capture;
    struct Event *captured;
} Event;

/* An item of a stream's queue. */
typedef struct Work {
    enum { RUN, RECORD, WAIT } kind;
    Status (*run)(void *data);
    Event *event;
    uint64_t mark;
    Stream *of;
    struct Work *next;
    char data[] __attribute__((aligned(16)));
} Work;

struct Stream { Work *first, *last; Stream *other; Capture *capture; int number, priority; };

/* Adds work to a stream that is captured. */
Status capture_work(Stream *stream, const Work *work, const void *data, size_t bytes);
/* An error if the calling thread captures a stream: then it may not wait for the device, nor take or give back memory. */
Status forbidden_in_capture(void);

#endif
