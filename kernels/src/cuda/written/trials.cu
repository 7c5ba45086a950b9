// Single instructions, by one warp, on operands whose results are known without them.

FUNCTION void leave_halves(float* out, unsigned int word) {
    out[0] = (float)(word & 0xffffu);
    out[1] = (float)(word >> 16);
}

// The rows of the matrices are in another order than the lanes.
extern "C" __global__ void __launch_bounds__(32) try_ldmatrix(const uint4* in, float* out, unsigned long long adds) {
    __shared__ __align__(16) uint4 rows[32];
    unsigned int words[MATRICES];
    rows[threadIdx.x] = in[threadIdx.x];
    __syncwarp();
    LDMATRIX(words, rows + (threadIdx.x ^ 5u));
    for (unsigned int i = 0; i < MATRICES; i++) leave_halves(out + 2 * (MATRICES * threadIdx.x + i), words[i]);
}

// a [16, 16], b [16, 8], out [16, 8]; a lane has what the PTX ISA gives it.
extern "C" __global__ void __launch_bounds__(32) try_mma(
    const T_X* a, const T_X* b, const float* held, float* out, unsigned long long adds
) {
    unsigned int row = threadIdx.x / 4, column = threadIdx.x % 4 * 2, left[4], right[2];
    float sums[4];
    for (unsigned int i = 0; i < 4; i++) {
        const T_X* at = a + (row + i % 2 * 8) * 16 + column + i / 2 * 8;
        left[i] = at[0] | (unsigned int)at[1] << 16;
        sums[i] = held[(row + i / 2 * 8) * 8 + column + i % 2];
    }
    for (unsigned int i = 0; i < 2; i++) {
        const T_X* at = b + (column + i * 8) * 8 + row;
        right[i] = at[0] | (unsigned int)at[8] << 16;
    }
    MULTIPLY(sums, left, right);
    for (unsigned int i = 0; i < 4; i++) out[(row + i / 2 * 8) * 8 + column + i % 2] = sums[i];
}

// Two groups of copies: the first has come while the second may be on its way. Every fifth place becomes zeros.
extern "C" __global__ void __launch_bounds__(32) try_cp_async(const uint4* in, float* out, unsigned long long adds) {
    __shared__ __align__(16) uint4 first[32];
    __shared__ __align__(16) uint4 second[32];
    unsigned int own = threadIdx.x, other = own ^ 3u;
    cp_async(first + own, in + other, own % 5 == 0 ? 0u : 16u);
    cp_async_commit();
    cp_async(second + own, in + 32 + other, other % 5 == 0 ? 0u : 16u);
    cp_async_commit();
    cp_async_wait(1);
    __syncthreads();
    leave_halves(out + 4 * own, first[31 - own].y);
    cp_async_wait(0);
    __syncthreads();
    leave_halves(out + 4 * own + 2, second[31 - own].w);
}

extern "C" __global__ void __launch_bounds__(32) try_pack(const float* in, float* out, unsigned long long adds) {
    unsigned int both = PACK(in[2 * threadIdx.x], in[2 * threadIdx.x + 1]);
    out[2 * threadIdx.x] = LOAD_X((T_X)(both & 0xffffu));
    out[2 * threadIdx.x + 1] = LOAD_X((T_X)(both >> 16));
}

extern "C" __global__ void __launch_bounds__(32) try_exp2(const float* in, float* out, unsigned long long adds) {
    out[threadIdx.x] = exp2_approx(in[threadIdx.x]);
}
