/* A CUDA without a GPU: the driver, NVRTC and cuBLASLt as far as Meshwright calls them, on this processor.
 *
 * Streams do nothing before somebody waits for them, the latest that CUDA allows: what is not ordered comes out wrong. Products are
 * computed as the descriptors say, one by one. What a captured stream is given becomes a graph, whose launch does it as late. After an error in a stream every call returns it, and `cuGetErrorString` describes it.
 * STAND_IN_CRASH names a kernel that ends with such an error.
 * With STAND_IN_FAULTS kernels spoil the last that they write, copies on the device forget their last byte, products are off in one
 * element, streams do not wait for events, and every event loses memory. STAND_IN_CAPABILITY is ten times the compute capability, 90
 * if it is not set. */
#ifndef DRIVER_H
#define DRIVER_H
#include "model.h"

typedef uint64_t Address;
typedef struct Stream Stream;
enum {
    INVALID_CONTEXT = 201, NO_BINARY = 200, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, OUT_OF_RESOURCES = 701,
    CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, CAPTURE_UNJOINED = 904, CAPTURE_ISOLATION = 905, CAPTURED_EVENT = 907,
};

/* Gives a stream work: a function on a copy of some data. */
Status give(Stream *stream, Status (*run)(void *data), const void *data, size_t bytes);
/* Does all work of all streams. */
Status finish_all(void);
/* The status of the first error in a stream, or OK. */
Status failed(void);
/* Keeps the first error. */
Status fail(Status status, const char *text);

/* An error if memory around an allocation has been written. */
Status check_guards(void);
/* Bytes of device memory that are taken. */
extern size_t taken;

/* Lets one thread at a time be in the driver, from here to the end of a function. */
#define ONE_AT_A_TIME __attribute__((cleanup(leave_driver), unused)) int entered = enter_driver()
int enter_driver(void);
void leave_driver(int *entered);

/* True if the calling thread has a context. */
int has_context(void);
/* Ten times the compute capability. */
int capability(void);
int faulty(void);

#endif
