
// What the threads of a team make of a number of each, in an order that depends on the team alone.

FUNCTION float larger(float a, float b) { return b > a ? b : a; }

FUNCTION float warp_sum(float x) {
    for (int by = 16; by > 0; by /= 2) x += __shfl_xor_sync(0xffffffffu, x, by);
    return x;
}

FUNCTION float warp_max(float x) {
    for (int by = 16; by > 0; by /= 2) x = larger(x, __shfl_xor_sync(0xffffffffu, x, by));
    return x;
}

// The numbers of the warps of a block go through `parts`, which nobody reads any more when the last one has come.
FUNCTION float block_sum(float x, float* parts, unsigned int warps) {
    x = warp_sum(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    x = parts[0];
    for (unsigned int warp = 1; warp < warps; warp++) x += parts[warp];
    return x;
}

FUNCTION float block_max(float x, float* parts, unsigned int warps) {
    x = warp_max(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    x = parts[0];
    for (unsigned int warp = 1; warp < warps; warp++) x = larger(x, parts[warp]);
    return x;
}
