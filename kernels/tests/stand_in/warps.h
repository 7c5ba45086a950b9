/* What the lanes of a warp do together. */
#ifndef WARPS_H
#define WARPS_H
#include "threads.h"

/* Begins a block, in which no lane waits for another. */
void warps_begin(void);
/* True if `waiting` waits for `other`. */
int warps_misses(const Thread *waiting, const Thread *other);

#endif
