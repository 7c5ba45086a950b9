/* CUDA C as C. */
#ifndef SOURCE_H
#define SOURCE_H
#include <stdio.h>

/* Writes a source as C, with a table of its kernels, which are all functions behind `extern "C" __global__`. Returns an error or 0. */
const char *write_as_c(FILE *file, const char *source);

#endif
