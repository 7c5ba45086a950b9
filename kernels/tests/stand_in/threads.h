/* The threads of the block that runs: fibres that switch where they wait for one another. */
#ifndef THREADS_H
#define THREADS_H
#include "fibres.h"
#include "model.h"

enum { MOST_THREADS = 1024, WARP = 32 };

typedef struct {
    Fibre fibre;
    char *stack;
    unsigned number, index[3];
    /* The function in which it waits, with its line, or 0. */
    const char *waits;
    int line, returned;
    /* Of an exchange with other lanes. */
    ModelExchange kind;
    unsigned mask;
    uint64_t value, result;
    int argument, width;
} Thread;

extern Thread threads[MOST_THREADS];
extern unsigned thread_count;
extern Thread *current;

/* Runs a block of threads that all call `run`. */
Status threads_run(Extent block, void (*run)(void));
/* Lets the current thread wait. */
void threads_wait(const char *where, int line);
/* Lets a thread go on when its turn comes. */
void threads_wake(Thread *thread);
/* Goes on with the next thread that does not wait. */
void threads_switch(void);
/* Ends the launch with an error about a thread. */
_Noreturn void threads_fail(Status status, const Thread *thread, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
