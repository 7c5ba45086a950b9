/* What the text of a kernel calls, and what the stand-in of NVRTC states about the kernel behind it. */
#ifndef CALLS_H
#define CALLS_H
#include <stddef.h>
#include <stdint.h>

typedef struct {
    const char *name;
    /* Calls it with the values at these places. */
    void (*call)(void **arguments);
    /* Bytes of each parameter. */
    const size_t *sizes;
    unsigned parameters;
    /* The most threads of a block that the source permits. */
    unsigned threads;
    /* Its static shared memory. */
    char *shared, *shared_end;
    /* The library that it is in. */
    char *module, *module_end;
} ModelKernel;

/* One of the three numbers of an index or extent. */
enum { MODEL_THREAD = 0, MODEL_BLOCK = 3, MODEL_BLOCK_EXTENT = 6, MODEL_GRID_EXTENT = 9 };
unsigned model_index(int which) __attribute__((const));

/* The dynamic shared memory of the block. */
void *model_dynamic(void) __attribute__((const));

/* Waits for all threads of the block. Returns the number of those that count. `line` is where the call is. */
unsigned model_barrier(int line, int counts);

/* Waits for the lanes of a mask, and exchanges values between them. A vote returns a bit for each lane with a value. */
typedef enum { MODEL_SYNC, MODEL_VOTE, MODEL_INDEX, MODEL_UP, MODEL_DOWN, MODEL_XOR } ModelExchange;
uint64_t model_exchange(int line, ModelExchange kind, unsigned mask, uint64_t value, int argument, int width);

#endif
