/* Instructions on matrices and copies that go on beside the thread, as the PTX ISA defines them. */
#ifndef INSTRUCTIONS_H
#define INSTRUCTIONS_H
#include "threads.h"

/* Begins a block, in which no copy is on its way. */
void instructions_begin(void);
/* All lanes of the warp have come to an instruction of this kind: computes what it gives to each. */
void instructions_complete(Thread *warp, ModelExchange kind);

#endif
