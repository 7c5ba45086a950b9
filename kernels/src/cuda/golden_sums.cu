
extern "C" __global__ void __launch_bounds__(64) group(
    const float* in0,
    const float* in1,
    float* out0,
    float* partials
) {
    unsigned int lane = threadIdx.x;
    unsigned long long first = blockIdx.x, teams = (unsigned long long)gridDim.x * 1;
    for (unsigned long long team = first; team < 2ull; team += teams) {
        float sum1[1] = {0.0f};
        unsigned long long start = team * 4, end = start + 4 < 6ull ? start + 4 : 6ull;
        for (unsigned long long row = start; row < end; row++) {
            #pragma unroll
            for (unsigned int k = 0; k < 1; k++) {
                unsigned long long column = lane + k * 64;
                if (column < 50ull) {
                    unsigned long long e = row * 50ull + column;
                    float v1 = load_f32(in0[e]);
                    float v2 = load_f32(in1[e]);
                    float v3 = binary_mul(v1, v2);
                    out0[e] = store_f32(v3);
                    sum1[k] += v3;
                }
            }
        }
        #pragma unroll
        for (unsigned int k = 0; k < 1; k++) {
            unsigned long long column = lane + k * 64;
            if (column < 50ull) {
                partials[(team) * 50 + 0 + column] = sum1[k];
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(512) chunks(
    const float* partials,
    float* out1,
    unsigned long long adds
) {
    __shared__ float slices[512];
    unsigned int lane = threadIdx.x % 32, slice = threadIdx.x / 32;
    unsigned int start = slice * 1, end = start + 1 < 2u ? start + 1 : 2u;
    for (unsigned long long base = (unsigned long long)blockIdx.x * 32; base < 50ull; base += (unsigned long long)gridDim.x * 32) {
        unsigned long long column = base + lane;
        float sum = 0.0f;
        if (column < 50ull) {
            #pragma unroll 8
            for (unsigned int i = start; i < end; i++) sum += partials[(unsigned long long)i * 50 + 0 + column];
        }
        slices[threadIdx.x] = sum;
        __syncthreads();
        if (slice == 0 && column < 50ull) {
            sum = adds >> 1 & 1 ? load_f32(out1[column]) : 0.0f;
            #pragma unroll
            for (unsigned int i = 0; i < 16; i++) sum += slices[i * 32 + lane];
            out1[column] = store_f32(sum);
        }
        __syncthreads();
    }
}
