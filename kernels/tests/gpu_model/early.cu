// Kernels that use instructions on matrices or asynchronous copies with a mistake each. What the model says of it is in gpu_model.rs.

// A copy has no more than begun.
extern "C" __global__ void no_wait(const uint4* in, float* out) {
    __shared__ __align__(16) uint4 tile[32];
    cp_async(tile + threadIdx.x, in + threadIdx.x, 16);
    cp_async_commit();
    out[threadIdx.x] = __uint_as_float(tile[threadIdx.x].x);
}

// The second group may still be on its way.
extern "C" __global__ void waits_for_too_few(const uint4* in, float* out) {
    __shared__ __align__(16) uint4 tile[64];
    cp_async(tile + threadIdx.x, in + threadIdx.x, 16);
    cp_async_commit();
    cp_async(tile + 32 + threadIdx.x, in + threadIdx.x, 16);
    cp_async_commit();
    cp_async_wait(1);
    out[threadIdx.x] = __uint_as_float(tile[32 + threadIdx.x].x);
}

// Only committed copies are waited for.
extern "C" __global__ void no_commit(const uint4* in, float* out) {
    __shared__ __align__(16) uint4 tile[32];
    cp_async(tile + threadIdx.x, in + threadIdx.x, 16);
    cp_async_wait(0);
    out[threadIdx.x] = __uint_as_float(tile[threadIdx.x].x);
}

// A thread waits for its own copies, not for those of others.
extern "C" __global__ void waits_without_barrier(const uint4* in, float* out) {
    __shared__ __align__(16) uint4 tile[32];
    cp_async(tile + threadIdx.x, in + threadIdx.x, 16);
    cp_async_commit();
    cp_async_wait(0);
    out[threadIdx.x] = __uint_as_float(tile[threadIdx.x ^ 1u].x);
}

// The tile is filled again while others may still read it.
extern "C" __global__ void fills_too_early(const uint4* in, float* out) {
    __shared__ __align__(16) uint4 tile[32];
    float sum = 0.0f;
    for (int i = 0; i < 2; i++) {
        cp_async(tile + threadIdx.x, in + threadIdx.x, 16);
        cp_async_commit();
        cp_async_wait(0);
        __syncthreads();
        sum += __uint_as_float(tile[threadIdx.x ^ 1u].x);
    }
    out[threadIdx.x] = sum;
}

// The source changes before the copy has come.
extern "C" __global__ void source_changes(uint4* in, float* out) {
    __shared__ __align__(16) uint4 tile[32];
    cp_async(tile + threadIdx.x, in + threadIdx.x, 16);
    cp_async_commit();
    in[threadIdx.x ^ 1u].x = 0u;
    cp_async_wait(0);
    out[threadIdx.x] = __uint_as_float(tile[threadIdx.x].x);
}

extern "C" __global__ void copy_out_of_line(const uint4* in, float* out) {
    __shared__ __align__(16) uint4 tile[32];
    cp_async(tile + threadIdx.x, (const float*)in + 4 * threadIdx.x + 1, 16);
    cp_async_commit();
    cp_async_wait(0);
    out[threadIdx.x] = __uint_as_float(tile[threadIdx.x].x);
}

extern "C" __global__ void copies_from_outside(const uint4* in, float* out) {
    __shared__ __align__(16) uint4 tile[32];
    cp_async(tile + threadIdx.x, in + threadIdx.x + 1, 16);
    cp_async_commit();
    cp_async_wait(0);
    out[threadIdx.x] = __uint_as_float(tile[threadIdx.x].x);
}

// The matrices' rows are written by other lanes.
extern "C" __global__ void matrix_without_barrier(const uint4* in, float* out) {
    __shared__ __align__(16) uint4 tile[32];
    unsigned int words[4];
    tile[threadIdx.x] = in[threadIdx.x];
    ldmatrix_x4(words, tile + (threadIdx.x ^ 1u));
    out[threadIdx.x] = __uint_as_float(words[0] ^ words[3]);
}

extern "C" __global__ void matrix_out_of_line(const uint4* in, float* out) {
    __shared__ __align__(16) float tile[132];
    unsigned int words[4];
    for (unsigned int i = 0; i < 4; i++) tile[i * 32 + threadIdx.x] = 1.0f;
    __syncwarp();
    ldmatrix_x4(words, tile + 4 * threadIdx.x + 2);
    out[threadIdx.x] = __uint_as_float(words[0] ^ words[3]);
}

extern "C" __global__ void matrix_elsewhere(const uint4* in, float* out) {
    unsigned int words[4];
    ldmatrix_x4(words, in + threadIdx.x);
    out[threadIdx.x] = __uint_as_float(words[0] ^ words[3]);
}

// Rows at equal places of their 128 bytes.
extern "C" __global__ void matrix_in_one_bank(const uint4* in, float* out) {
    __shared__ __align__(16) uint4 tile[256];
    unsigned int words[4];
    for (unsigned int i = 0; i < 8; i++) tile[i * 32 + threadIdx.x] = in[threadIdx.x];
    __syncwarp();
    ldmatrix_x4(words, tile + 8 * threadIdx.x);
    out[threadIdx.x] = __uint_as_float(words[0] ^ words[3]);
}

extern "C" __global__ void half_a_product(const uint4* in, float* out) {
    unsigned int words[4] = {0u, 0u, 0u, 0u};
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (threadIdx.x < 16) mma_bf16(sums, words, words);
    out[threadIdx.x] = sums[0];
}
