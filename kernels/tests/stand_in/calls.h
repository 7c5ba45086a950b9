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
typedef enum { MODEL_SYNC, MODEL_VOTE, MODEL_INDEX, MODEL_UP, MODEL_DOWN, MODEL_XOR, MODEL_LDMATRIX, MODEL_MMA } ModelExchange;
uint64_t model_exchange(int line, ModelExchange kind, unsigned mask, uint64_t value, int argument, int width);

/* Instructions that take all lanes of a warp. */
typedef enum { MODEL_BF16, MODEL_F16 } ModelFormat;
void model_ldmatrix(int line, int count, int transposed, uint32_t *to, const void *row);
void model_mma(int line, ModelFormat format, float *sums, const uint32_t *a, const uint32_t *b);

/* Copies of a thread that go on beside it. */
void model_cp_async(void *to, const void *from, unsigned bytes);
void model_cp_async_commit(void);
void model_cp_async_wait(unsigned groups);

#endif
