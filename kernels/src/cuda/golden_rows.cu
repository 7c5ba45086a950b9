
extern "C" __global__ void __launch_bounds__(256) group(
    const unsigned short* in0,
    unsigned short* out0,
    float* out1
) {
    unsigned int lane = threadIdx.x % 32;
    unsigned long long first = (unsigned long long)blockIdx.x * 8 + threadIdx.x / 32, teams = (unsigned long long)gridDim.x * 8;
    for (unsigned long long team = first; team < 6ull; team += teams) {
        unsigned long long start = team * 1, end = start + 1 < 6ull ? start + 1 : 6ull;
        for (unsigned long long row = start; row < end; row++) {
            float saved0[2];
            float r2 = 0.0f;
            #pragma unroll
            for (unsigned int k = 0; k < 2; k++) {
                unsigned long long column = lane + k * 32;
                if (column < 50ull) {
                    unsigned long long e = row * 50ull + column;
                    float v1 = load_bf16(in0[e]);
                    float v2 = unary_square(v1);
                    saved0[k] = v1;
                    r2 += v2;
                }
            }
            r2 = warp_sum(r2);
            float v3 = unary_rsqrt(r2);
            #pragma unroll
            for (unsigned int k = 0; k < 2; k++) {
                unsigned long long column = lane + k * 32;
                if (column < 50ull) {
                    unsigned long long e = row * 50ull + column;
                    float v4 = binary_mul(saved0[k], v3);
                    out0[e] = store_bf16(v4);
                }
            }
            __syncwarp();
            if (lane == 0) {
                out1[row] = store_f32(v3);
            }
        }
    }
}
