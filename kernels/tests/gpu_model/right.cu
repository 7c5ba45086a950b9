// Kernels that need what the model of a GPU has. Each computes something that the test computes in another way.

// Sums of the blocks' parts.
extern "C" __global__ void __launch_bounds__(256) block_sums(const float* __restrict__ in, float* __restrict__ out) {
    __shared__ float sums[256];
    unsigned int t = threadIdx.x;
    sums[t] = in[blockIdx.x * blockDim.x + t];
    for (unsigned int half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) sums[t] += sums[t + half];
    }
    if (t == 0) out[blockIdx.x] = sums[0];
}

// Sums of the warps' parts: in each lane, and in the first only.
extern "C" __global__ void warp_sums(const float* in, float* every, float* first) {
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    float a = in[i], b = a;
    for (int lanes = 16; lanes > 0; lanes /= 2) a += __shfl_xor_sync(0xffffffffu, a, lanes);
    for (int lanes = 16; lanes > 0; lanes /= 2) b += __shfl_down_sync(0xffffffffu, b, lanes);
    every[i] = a;
    if (i % warpSize == 0) first[i / warpSize] = b;
}

// Which lane each shuffle reads.
extern "C" __global__ void shuffles(int* out, int width) {
    int lane = (int)threadIdx.x;
    int* to = out + 8 * lane;
    to[0] = __shfl_sync(0xffffffffu, lane, 3, width);
    to[1] = __shfl_up_sync(0xffffffffu, lane, 3, width);
    to[2] = __shfl_down_sync(0xffffffffu, lane, 3, width);
    to[3] = __shfl_xor_sync(0xffffffffu, lane, 9, width);
    to[4] = (int)__shfl_sync(0xffffffffu, (unsigned int)lane, lane * 5);
    // Halves of a warp on paths of their own.
    if (lane < 16) to[5] = __shfl_xor_sync(0x0000ffffu, lane, 1);
    else to[5] = __shfl_xor_sync(0xffff0000u, lane, 2);
    to[6] = (int)__ballot_sync(0xffffffffu, lane % 3 == 0);
    to[7] = 4 * (__any_sync(0xffffffffu, lane == 7) != 0) + 2 * (__all_sync(0xffffffffu, lane < 32) != 0)
        + (__all_sync(0xffffffffu, lane < 31) != 0);
}

// The lanes of a warp pass numbers on through shared memory.
extern "C" __global__ void ring(int* out, int rounds) {
    __shared__ int numbers[64];
    unsigned int t = threadIdx.x, next = t / warpSize * warpSize + (t + 1) % warpSize;
    numbers[t] = (int)t;
    for (int i = 0; i < rounds; i++) {
        __syncwarp();
        int number = numbers[next];
        __syncwarp(0xffffffffu);
        numbers[t] = number;
    }
    out[t] = numbers[t];
}

// How many threads have an even number in, whether any is 0, whether all are.
extern "C" __global__ void counts(const int* in, int* out) {
    int number = in[threadIdx.x];
    int even = __syncthreads_count(number % 2 == 0);
    int any = __syncthreads_or(number == 0);
    int all = __syncthreads_and(number == 0);
    if (threadIdx.x == blockDim.x - 1) {
        out[0] = even;
        out[1] = any != 0;
        out[2] = all != 0;
    }
}

#define TILE 32
extern "C" __global__ void transposed(const float* in, float* out, unsigned int rows, unsigned int columns) {
    __shared__ float tile[TILE][TILE + 1];
    unsigned int row = blockIdx.y * TILE, column = blockIdx.x * TILE;
    for (unsigned int i = threadIdx.y; i < TILE; i += blockDim.y)
        if (row + i < rows && column + threadIdx.x < columns)
            tile[i][threadIdx.x] = in[(unsigned long long)(row + i) * columns + column + threadIdx.x];
    __syncthreads();
    for (unsigned int i = threadIdx.y; i < TILE; i += blockDim.y)
        if (column + i < columns && row + threadIdx.x < rows)
            out[(unsigned long long)(column + i) * rows + row + threadIdx.x] = tile[threadIdx.x][i];
}

// Each block reverses its part, of any length, in dynamic shared memory.
extern "C" __global__ void reversed(const float4* in, float4* out, unsigned int n) {
    extern __shared__ __align__(16) float4 part[];
    for (unsigned int i = threadIdx.x; i < n; i += blockDim.x) part[i] = in[blockIdx.x * n + i];
    __syncthreads();
    for (unsigned int i = threadIdx.x; i < n; i += blockDim.x) out[blockIdx.x * n + i] = part[n - 1 - i];
}

// All twelve numbers, at the place that they give.
extern "C" __global__ void places(unsigned int* out) {
    unsigned int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    unsigned int threads = blockDim.x * blockDim.y * blockDim.z;
    unsigned int* to = out + 8 * (block * threads + thread);
    to[0] = blockIdx.x, to[1] = blockIdx.y, to[2] = blockIdx.z;
    to[3] = threadIdx.x, to[4] = threadIdx.y, to[5] = threadIdx.z;
    to[6] = __shfl_sync(0xffffffffu, thread, 0);
    to[7] = gridDim.x * 10000 + gridDim.y * 1000 + gridDim.z * 100 + blockDim.z;
}

typedef struct {
    const float* in;
    float scale;
    unsigned short shift;
    unsigned char negative;
} Arguments;

// Parameters of all sizes, and one in three words.
extern "C" __global__ void __launch_bounds__(32, 2) parameters(
    Arguments arguments, unsigned char a, unsigned short b, int c, const float d, double e, float* out
) {
    float x = arguments.in[threadIdx.x] * arguments.scale + (float)arguments.shift;
    out[threadIdx.x] = (arguments.negative ? -x : x) + (float)a + (float)b + (float)c + d + (float)e;
}

extern "C" __global__ void many_parameters(
    float* out, char c0, short c1, int c2, unsigned long long c3, char c4, short c5, int c6, unsigned long long c7,
    char c8, short c9, int c10, unsigned long long c11
) {
    out[0] = (float)(c0 + 2 * c1 + 3 * c2 + 5 * c3 + 7 * c4 + 11 * c5 + 13 * c6 + 17 * c7 + 19 * c8 + 23 * c9 + 29 * c10 + 31 * c11);
}
