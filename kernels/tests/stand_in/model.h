/* The model of a GPU, as the driver uses it: runs kernels, thread by thread, on one thread of the processor. */
#ifndef MODEL_H
#define MODEL_H
#include "calls.h"

/* Statuses of the driver, as cuda.h numbers them. */
typedef int Status;
enum { OK = 0, INVALID_VALUE = 1, ILLEGAL_ADDRESS = 700, MISALIGNED_ADDRESS = 716, LAUNCH_FAILED = 719 };

typedef struct { unsigned x, y, z; } Extent;

/* Bytes of shared memory on compute capability 9.0: without and with the kernel's consent (CUDA C++ Programming Guide, "Technical
 * Specifications per Compute Capability"). */
enum { MOST_SHARED = 48 << 10, MOST_SHARED_BY_CONSENT = 227 << 10 };

/* Runs a kernel with `dynamic` bytes of dynamic shared memory. After an error, `model_failure` describes it. */
Status model_launch(const ModelKernel *kernel, void **arguments, Extent grid, Extent block, size_t dynamic);
const char *model_failure(void);

/* Changes what the last launch wrote last. */
void model_spoil(void);

/* Lets kernels access memory from now on, or no longer. */
void model_add_memory(void *start, size_t bytes);
void model_remove_memory(void *start);

#endif
