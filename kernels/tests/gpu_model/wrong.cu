// Kernels with a mistake each. What the model says of it is in gpu_model.rs.

extern "C" __global__ void no_barrier(float* out) {
    __shared__ float part[64];
    part[threadIdx.x] = out[threadIdx.x];
    out[threadIdx.x] = part[63 - threadIdx.x];
}

// What a thread writes in the second round another may still read in the first.
extern "C" __global__ void one_barrier_too_few(float* out) {
    __shared__ float part[64];
    float sum = 0.0f;
    for (int i = 0; i < 2; i++) {
        part[threadIdx.x] = (float)i;
        __syncthreads();
        sum += part[(threadIdx.x + 33) % 64];
    }
    out[threadIdx.x] = sum;
}

// A shuffle orders no memory.
extern "C" __global__ void shuffle_for_barrier(float* out) {
    __shared__ float part[32];
    part[threadIdx.x] = 1.0f;
    float other = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
    out[threadIdx.x] = other + part[threadIdx.x ^ 1];
}

// One half of the lanes waits for the other half in vain.
extern "C" __global__ void half_a_warp(float* out) {
    __shared__ float part[32];
    part[threadIdx.x] = 1.0f;
    if (threadIdx.x < 16) __syncwarp(0x0000ffffu);
    else __syncwarp(0xffff0000u);
    out[threadIdx.x] = part[threadIdx.x ^ 16];
}

extern "C" __global__ void lost_update(float* out) {
    out[0] += 1.0f;
}

// A block reads what another writes.
extern "C" __global__ void between_blocks(float* out) {
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    float next = out[(i + blockDim.x) % n];
    __syncthreads();
    out[i] = next;
}

extern "C" __global__ void never_written(float* out) {
    __shared__ float part[64];
    if (threadIdx.x > 0) part[threadIdx.x] = 1.0f;
    __syncthreads();
    out[threadIdx.x] = part[63 - threadIdx.x];
}

extern "C" __global__ void returns_early(float* out) {
    if (threadIdx.x == 5) return;
    __syncthreads();
    out[threadIdx.x] = 1.0f;
}

extern "C" __global__ void two_barriers(float* out) {
    if (threadIdx.x < 16) __syncthreads();
    else __syncthreads();
    out[threadIdx.x] = 1.0f;
}

extern "C" __global__ void half_a_shuffle(float* out) {
    float x = out[threadIdx.x];
    if (threadIdx.x < 16) x = __shfl_down_sync(0xffffffffu, x, 1);
    out[threadIdx.x] = x;
}

extern "C" __global__ void two_shuffles(float* out) {
    float x = out[threadIdx.x];
    if (threadIdx.x < 16) x = __shfl_down_sync(0xffffffffu, x, 1);
    else x = __shfl_up_sync(0xffffffffu, x, 1);
    out[threadIdx.x] = x;
}

extern "C" __global__ void foreign_mask(float* out) {
    out[threadIdx.x] = __shfl_sync(0x0000ffffu, out[threadIdx.x], 0);
}

extern "C" __global__ void lanes_that_are_not_there(float* out) {
    out[threadIdx.x] = __shfl_sync(0xffffffffu, out[threadIdx.x], 0);
}

// A lane reads one that its mask lacks.
extern "C" __global__ void lane_outside(float* out) {
    if (threadIdx.x < 16) out[threadIdx.x] = __shfl_down_sync(0x0000ffffu, 1.0f, 1);
}

extern "C" __global__ void writes_outside(float* out, int by) {
    if (threadIdx.x == 3) out[by] = 1.0f;
}

extern "C" __global__ void reads_outside(float* out, int by) {
    if (threadIdx.x == 3) out[0] = out[by];
}

extern "C" __global__ void out_of_line(float* out) {
    float4 four = ((float4*)(out + 1))[threadIdx.x];
    out[32 + threadIdx.x] = four.x;
}

extern "C" __global__ void outside_shared(float* out) {
    extern __shared__ float part[];
    part[threadIdx.x] = 1.0f;
    out[threadIdx.x] = part[threadIdx.x];
}

extern "C" __global__ void __launch_bounds__(32) bounded(float* out) {
    out[threadIdx.y * blockDim.x + threadIdx.x] = 1.0f;
}

// The array behind it is not its own.
extern "C" __global__ void beyond_an_array(float* out) {
    __shared__ float a[32];
    __shared__ float b[32];
    a[threadIdx.x] = b[threadIdx.x] = 1.0f;
    __syncthreads();
    out[threadIdx.x] = a[threadIdx.x + 1] + b[threadIdx.x];
}
