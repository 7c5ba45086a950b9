/* NCCL between the processes of one user, as far as the streams see it. */
#ifndef NCCL_H
#define NCCL_H

#include "driver.h"

/* This process looks for a stream that can go on. */
void nccl_looks(void);
/* A stream of this process has gone on. */
void nccl_moved(void);
/* No stream of this process can go on before another process does. Fails if that holds for all of them. */
void nccl_wait(void);

/* A graph takes a piece of work, or with -1 gives it up: a communicator does not end while a graph has calls of it. */
void nccl_captured(Status (*run)(void *data), void *data, int by);

#endif
