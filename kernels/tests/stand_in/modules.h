/* Libraries of kernels. */
#ifndef MODULES_H
#define MODULES_H
#include "calls.h"

/* The name of a library's table of kernels, which ends with a kernel without a name. */
#define KERNELS "model_kernels"

/* A kernel of the library at a path with more static shared memory than there is, or 0. */
const ModelKernel *oversized_kernel(const char *path);

#endif
