// The largest size of an element of each block of elements that share a scale.
// A warp for each scale.
extern "C" __global__ void __launch_bounds__(256) absmax(const T_X* x, float* out, unsigned long long adds) {
    for (unsigned long long scale = FIRST_THREAD / 32; scale < SCALES; scale += THREADS / 32) {
        float most = 0.0f;
        for (unsigned long long i = threadIdx.x % 32; i < SIZE; i += 32) most = larger(most, fabsf(LOAD_X(x[PLACE(scale * SIZE + i)])));
        most = warp_max(most);
        if (threadIdx.x % 32 == 0) out[scale] = adds & 1 ? out[scale] + most : most;
    }
}
