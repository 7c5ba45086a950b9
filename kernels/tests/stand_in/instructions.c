/* Models of instructions. Sections of the PTX ISA have their tables: "ldmatrix", "Matrix Fragments for mma.m16n8k16 with floating point
 * type", "cp.async". */
#include "instructions.h"
#include "accesses.h"
#include "warps.h"
#include <stdlib.h>
#include <string.h>

typedef struct { const void *row; uint32_t *to; int count, transposed; } Load;
typedef struct { float *sums; const uint32_t *a, *b; ModelFormat format; } Product;

void model_ldmatrix(int line, int count, int transposed, uint32_t *to, const void *row) {
    Load load = {row, to, count, transposed};
    model_exchange(line, MODEL_LDMATRIX, ~0u, (uintptr_t)&load, 0, WARP);
}

void model_mma(int line, ModelFormat format, float *sums, const uint32_t *a, const uint32_t *b) {
    Product product = {sums, a, b, format};
    model_exchange(line, MODEL_MMA, ~0u, (uintptr_t)&product, 0, WARP);
}

static const Load *load_of(const Thread *warp, unsigned lane) { return (const Load *)(uintptr_t)warp[lane].value; }
static const Product *product_of(const Thread *warp, unsigned lane) { return (const Product *)(uintptr_t)warp[lane].value; }

/* Lanes 8 i to 8 i + 7 give the rows of matrix i. Rows in the same banks are read one after another. */
static void read_matrix(Thread *warp, unsigned matrix, uint16_t elements[8][8]) {
    unsigned banks = 0;
    for (unsigned row = 0; row < 8; row++) {
        Thread *thread = &warp[8 * matrix + row];
        const char *at = load_of(warp, 8 * matrix + row)->row;
        accesses_vector(thread, (char *)at, IN_SHARED, "ldmatrix");
        unsigned bank = 1u << (uintptr_t)at / 16 % 8;
        if (banks & bank)
            threads_fail(LAUNCH_FAILED, thread, "bank conflict: its row in ldmatrix of line %d is in the banks of another", thread->line);
        banks |= bank;
        memcpy(elements[row], at, 16);
    }
}

static void load_matrices(Thread *warp) {
    uint16_t elements[8][8];
    for (int matrix = 0; matrix < load_of(warp, 0)->count; matrix++) {
        read_matrix(warp, matrix, elements);
        for (unsigned lane = 0; lane < WARP; lane++) {
            const Load *load = load_of(warp, lane);
            unsigned row = lane / 4, column = lane % 4 * 2;
            load->to[matrix] = load->transposed ? elements[column][row] | (uint32_t)elements[column + 1][row] << 16
                                                : elements[row][column] | (uint32_t)elements[row][column + 1] << 16;
        }
    }
}

static double power(int exponent) { return exponent < 0 ? 1.0 / (1ull << -exponent) : (double)(1ull << exponent); }

static double number(ModelFormat format, uint16_t bits) {
    if (format == MODEL_BF16) {
        uint32_t word = (uint32_t)bits << 16;
        float x;
        memcpy(&x, &word, sizeof x);
        return x;
    }
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double size = exponent == 31 ? (fraction ? __builtin_nan("") : __builtin_inf())
                  : exponent     ? (1024 + fraction) * power(exponent - 25)
                                 : fraction * power(-24);
    return bits >> 15 ? -size : size;
}

static uint16_t half(const uint32_t *words, int element) { return words[element / 2] >> element % 2 * 16; }

static void multiply(Thread *warp) {
    double a[16][16], b[16][8];
    ModelFormat format = product_of(warp, 0)->format;
    for (unsigned lane = 0; lane < WARP; lane++) {
        const Product *product = product_of(warp, lane);
        unsigned group = lane / 4, within = lane % 4;
        for (int i = 0; i < 8; i++) {
            int low = i == 0 || i == 1 || i == 4 || i == 5;
            a[low ? group : group + 8][within * 2 + (i & 1) + (i < 4 ? 0 : 8)] = number(format, half(product->a, i));
        }
        for (int i = 0; i < 4; i++) b[within * 2 + (i & 1) + (i < 2 ? 0 : 8)][group] = number(format, half(product->b, i));
    }
    for (unsigned lane = 0; lane < WARP; lane++) {
        for (int i = 0; i < 4; i++) {
            unsigned row = lane / 4 + (i < 2 ? 0 : 8), column = lane % 4 * 2 + (i & 1);
            float *to = &product_of(warp, lane)->sums[i];
            double sum = *to;
            for (int k = 0; k < 16; k++) sum += a[row][k] * b[k][column];
            *to = sum;
        }
    }
}

void instructions_complete(Thread *warp, ModelExchange kind) {
    if (kind == MODEL_LDMATRIX) load_matrices(warp); else multiply(warp);
}

/* Copies of a thread that are on their way, in order. They come as late as they may, and read as late. */
typedef struct { char *to; const char *from; unsigned bytes, group; } Copy;
static struct { Copy *list; unsigned count, room, groups; } copies[MOST_THREADS];

void instructions_begin(void) {
    for (unsigned i = 0; i < thread_count; i++) copies[i].count = copies[i].groups = 0;
}

void model_cp_async(void *to, const void *from, unsigned bytes) {
    if (bytes && bytes != 16) threads_fail(INVALID_VALUE, current, "cp.async of %u bytes, not 0 or 16", bytes);
    accesses_vector(current, to, IN_SHARED | WRITES, "cp.async");
    accesses_vector(current, (void *)from, bytes ? IN_GLOBAL : NOWHERE, "cp.async");
    accesses_arriving(to, 1);
    memset(to, 0xff, 16);
    typeof(*copies) *own = &copies[current->number];
    if (own->count == own->room) own->list = realloc(own->list, (own->room += 16) * sizeof *own->list);
    own->list[own->count++] = (Copy){to, from, bytes, own->groups};
}

void model_cp_async_commit(void) { copies[current->number].groups++; }

void model_cp_async_wait(unsigned groups) {
    typeof(*copies) *own = &copies[current->number];
    unsigned come = 0;
    for (; come < own->count && own->list[come].group + groups < own->groups; come++) {
        Copy copy = own->list[come];
        char brought[16] = {0};
        accesses_vector(current, (void *)copy.from, copy.bytes ? IN_GLOBAL : NOWHERE, "cp.async");
        memcpy(brought, copy.from, copy.bytes);
        accesses_arriving(copy.to, 0);
        accesses_vector(current, copy.to, IN_SHARED | WRITES, "cp.async");
        memcpy(copy.to, brought, 16);
    }
    own->count -= come;
    memmove(own->list, own->list + come, own->count * sizeof *own->list);
}
