// A block for each row of the table, and for each 256 of its columns, looks at all ids and adds the rows of those that name it, in order.
extern "C" __global__ void __launch_bounds__(256) embedding_grad(const int* ids, const T_X* x, T_OUT* out, unsigned long long adds) {
    __shared__ unsigned int hits[8];
    for (unsigned long long block = blockIdx.x; block < ROWS * SLABS; block += gridDim.x) {
        unsigned long long row = block / SLABS, column = block % SLABS * 256 + threadIdx.x;
        long long id = (long long)row + ORIGIN;
        int is_column = column < H;
        float sum = is_column && adds & 1 ? LOAD_OUT(out[row * H + column]) : 0.0f;
        for (unsigned long long start = 0; start < IDS; start += 256) {
            unsigned long long own = start + threadIdx.x;
            unsigned int ballot = __ballot_sync(0xffffffffu, own < IDS && ids[own] == id && id != PAD);
            __syncthreads();
            if (threadIdx.x % 32 == 0) hits[threadIdx.x / 32] = ballot;
            __syncthreads();
            for (unsigned int warp = 0; warp < 8; warp++) {
                unsigned int left = hits[warp];
                for (unsigned int lane = 0; left != 0; lane++, left >>= 1) {
                    if (is_column && left & 1) sum += LOAD_X(x[(start + warp * 32 + lane) * H + column]);
                }
            }
        }
        if (is_column) out[row * H + column] = STORE_OUT(sum);
    }
}
