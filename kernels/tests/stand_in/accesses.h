/* Checks of each access to memory by a kernel. The compiler calls them, since it is asked to instrument kernels for a checker of races
 * (`-fsanitize=thread`), whose library these functions replace.
 *
 * Found, in every order of the threads: accesses outside allocations, shared memory, the own stack and the kernel's library;
 * addresses that are no multiple of the size; two accesses to a byte, one of them a write, by two threads of a launch, with no
 * `__syncthreads()` between them, nor in one warp a `__syncwarp()`. Blocks of a launch are never in order.
 * Not found: races in allocations of more than RACES bytes, and on paths that no thread takes with the data at hand. The lanes of a
 * mask that is not full may be taken to race where `__syncwarp()` calls with different masks order them. */
#ifndef ACCESSES_H
#define ACCESSES_H

enum { RACES = 1 << 20 };

void accesses_begin_launch(void);
void accesses_begin_block(void);
/* All threads of the block have met. */
void accesses_barrier(void);
/* The lanes of a mask of the warp that begins with thread `first` have met. */
void accesses_warp(unsigned first, unsigned mask);
/* With STAND_IN_FAULTS, spoils what the launch wrote last. */
void accesses_end_launch(void);

#endif
