/* The order of threads and blocks: STAND_IN_ORDER is `forward`, `reverse`, or the seed of a random one. */
#ifndef ORDER_H
#define ORDER_H
#include <stdint.h>

/* Begins the order of a launch: the same for each launch of a process. */
void order_begin(void);
/* The block that runs as number `i` of `n`. */
uint64_t order_block(uint64_t i, uint64_t n);
/* A bijection of thread numbers below `n`; the scheduler goes through its images upwards. */
unsigned order_image(unsigned thread, unsigned n);
/* Where the scheduler looks for the next of `n` threads, after `last`. */
unsigned order_next(unsigned last, unsigned n);

#endif
