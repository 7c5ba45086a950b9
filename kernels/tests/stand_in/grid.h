/* A launch: the blocks of a grid, one after another. */
#ifndef GRID_H
#define GRID_H
#include "model.h"

/* The shared memory of the block that runs: static and dynamic. */
typedef struct { char *start; size_t bytes; } Piece;
typedef struct { Piece fixed, dynamic; } Shared;
extern Shared grid_shared;
/* The kernel that runs. */
extern const ModelKernel *grid_kernel;

/* Keeps the text of an error in a thread of the block that runs. */
void grid_describe_failure(const unsigned thread[3], const char *text);

#endif
