#include "grid.h"
#include "accesses.h"
#include "order.h"
#include "threads.h"
#include <stdio.h>
#include <string.h>

Shared grid_shared;
const ModelKernel *grid_kernel;

static void **values;
static char failure[700];
/* Index of the block, extents of block and grid. */
static unsigned places[9];
static char dynamic_memory[MOST_SHARED_BY_CONSENT] __attribute__((aligned(1024)));

const char *model_failure(void) { return failure; }
unsigned model_index(int which) { return which < MODEL_BLOCK ? current->index[which] : places[which - MODEL_BLOCK]; }
void *model_dynamic(void) { return dynamic_memory; }

void grid_describe_failure(const unsigned thread[3], const char *text) {
    snprintf(failure, sizeof failure, "kernel `%s`, block (%u, %u, %u), thread (%u, %u, %u): %s", grid_kernel->name, places[0], places[1],
             places[2], thread[0], thread[1], thread[2], text);
}

static void call(void) { grid_kernel->call(values); }

/* Bits of which every float is no number. */
static void poison(Piece piece) { memset(piece.start, 0xff, piece.bytes); }

Status model_launch(const ModelKernel *kernel, void **arguments, Extent grid, Extent block, size_t dynamic) {
    const unsigned extents[] = {0, 0, 0, block.x, block.y, block.z, grid.x, grid.y, grid.z};
    memcpy(places, extents, sizeof places);
    grid_kernel = kernel;
    grid_shared = (Shared){{kernel->shared, kernel->shared_end - kernel->shared}, {dynamic_memory, dynamic}};
    values = arguments;
    order_begin();
    accesses_begin_launch();
    uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t number = order_block(i, blocks);
        places[0] = number % grid.x;
        places[1] = number / grid.x % grid.y;
        places[2] = number / grid.x / grid.y;
        poison(grid_shared.fixed);
        poison(grid_shared.dynamic);
        accesses_begin_block();
        Status status = threads_run(block, call);
        if (status) return status;
    }
    return OK;
}
