/* Runs each kernel of kernels.h on data from a file: for each, the number of elements, of inputs and of the grid's blocks
 * and threads, the bytes of all buffers, then the buffers, the output last. Writes the outputs. */
#include "shim.h"
#include <stdio.h>
#include <stdlib.h>
#include "kernels.h"

static unsigned long long number(FILE *from) {
    unsigned long long n;
    if (fread(&n, 8, 1, from) != 1) exit(2);
    return n;
}

int main(int count, char **names) {
    FILE *from = fopen(names[1], "rb"), *to = fopen(names[2], "wb");
    if (count != 3 || !from || !to) return 2;
    for (unsigned k = 0; k < sizeof kernels / sizeof *kernels; k++) {
        unsigned long long n = number(from), inputs = number(from), blocks = number(from), threads = number(from);
        unsigned long long shift = number(from), bytes = 0;
        void *buffers[4];
        for (unsigned long long i = 0; i <= inputs; i++) {
            bytes = number(from);
            /* Aligned for vectors, and then shifted away from it. */
            buffers[i] = (char *)aligned_alloc(64, bytes / 64 * 64 + 128) + shift;
            if (bytes && fread(buffers[i], bytes, 1, from) != 1) return 2;
        }
        blockDim.x = threads, gridDim.x = blocks;
        for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++)
            for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++) kernels[k](buffers, n);
        fwrite(buffers[inputs], bytes, 1, to);
        for (unsigned long long i = 0; i <= inputs; i++) free((char *)buffers[i] - shift);
    }
    return fclose(to);
}
