/* Checks of each access to memory by a kernel. The compiler calls them, since it is asked to instrument kernels for its checkers of races
 * and of undefined behaviour (`-fsanitize=thread`, `alignment`, `bounds`), whose libraries these functions replace.
 *
 * Found, in every order of the threads:
 * - accesses outside allocations, shared memory, the thread's stack and the kernel's library, and indices outside an array;
 * - addresses that are not aligned for their type;
 * - accesses to shared memory that an asynchronous copy is still bringing;
 * - races: accesses to a byte by two threads of a launch, one of them a write, that no `__syncthreads()` is between, nor in one warp a
 *   `__syncwarp()`. Blocks are never in order.
 * Not found:
 * - races in allocations of more than RACES bytes, unless an order of threads and blocks changes bits;
 * - what is on paths that no thread takes with the data at hand;
 * - accesses by `memcpy` and `memset`, and those of which the compiler does away with at -O1.
 * Found without need: races between lanes that `__syncwarp()` calls with different masks order one after another. */
#ifndef ACCESSES_H
#define ACCESSES_H
#include "threads.h"

enum { RACES = 1 << 20 };

void accesses_begin_launch(void);
void accesses_begin_block(void);
/* All threads of the block have met. */
void accesses_barrier(void);
/* The lanes of a mask of the warp that begins with thread `first` have met. */
void accesses_warp(unsigned first, unsigned mask);

/* An instruction's access to 16 bytes by a thread: where the bytes are, or NOWHERE to check the address alone. */
enum { NOWHERE = 0, IN_GLOBAL = 1, IN_SHARED = 2, WRITES = 4 };
void accesses_vector(Thread *thread, void *at, int kind, const char *instruction);
/* A copy of 16 bytes of shared memory begins or has come. */
void accesses_arriving(void *at, int begins);

#endif
