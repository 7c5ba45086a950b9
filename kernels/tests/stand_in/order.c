#include "order.h"
#include <stdlib.h>
#include <string.h>

static enum { FORWARD, REVERSE, RANDOM } order;
static uint64_t state;

/* Xorshift: Marsaglia, "Xorshift RNGs", 2003, with the shifts 13, 7 and 17. */
static uint64_t number(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

void order_begin(void) {
    const char *name = getenv("STAND_IN_ORDER");
    order = !name || !strcmp(name, "forward") ? FORWARD : !strcmp(name, "reverse") ? REVERSE : RANDOM;
    if (order == RANDOM) state = (strtoull(name, 0, 10) + 1) * 0x9e3779b97f4a7c15u;
}

static uint64_t divisor(uint64_t a, uint64_t b) { return b ? divisor(b, a % b) : a; }

/* Random blocks are those of a random arithmetic progression. */
uint64_t order_block(uint64_t i, uint64_t n) {
    static uint64_t first, by;
    if (order == FORWARD) return i;
    if (order == REVERSE) return n - 1 - i;
    if (i == 0) {
        first = number() % n;
        do by = 1 + number() % n; while (divisor(by, n) != 1);
    }
    return (first + (unsigned __int128)i * by) % n;
}

unsigned order_image(unsigned thread, unsigned n) { return order == REVERSE ? n - 1 - thread : thread; }
unsigned order_next(unsigned last, unsigned n) { return order == RANDOM ? number() % n : (last + 1) % n; }
