// The largest size of an element of each part of a block of elements that share a scale.
// A warp for each part.
extern "C" __global__ void __launch_bounds__(256) absmax(const T_X* x, float* out, unsigned long long adds) {
    for (unsigned long long part = FIRST_THREAD / 32; part < SCALES * PARTS; part += THREADS / 32) {
        unsigned long long block = part / PARTS * SIZE, start = part % PARTS * PART;
        unsigned long long end = start + PART < SIZE ? start + PART : SIZE;
        float most = 0.0f;
        for (unsigned long long i = start + threadIdx.x % 32; i < end; i += 32) most = larger(most, fabsf(LOAD_X(x[PLACE(block + i)])));
        most = warp_max(most);
        if (threadIdx.x % 32 == 0) out[part] = adds & 1 ? out[part] + most : most;
    }
}
