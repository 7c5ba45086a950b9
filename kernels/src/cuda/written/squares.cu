// The sum of squares in double precision: of each chunk in an order of its own, and then of those, in order.
FUNCTION double in_double(double x, double* parts) {
    for (int by = 16; by > 0; by /= 2) x += __shfl_xor_sync(0xffffffffu, x, by);
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    x = parts[0];
    for (unsigned int warp = 1; warp < 8; warp++) x += parts[warp];
    return x;
}

extern "C" __global__ void __launch_bounds__(256) square_chunks(const T_X* x, double* partials, unsigned long long adds) {
    __shared__ double parts[8];
    for (unsigned long long chunk = blockIdx.x; chunk < CHUNKS; chunk += gridDim.x) {
        unsigned long long start = chunk * CHUNK, end = start + CHUNK < N ? start + CHUNK : N;
        double sum = 0.0;
        for (unsigned long long i = start + threadIdx.x; i < end; i += 256) {
            double one = (double)LOAD_X(x[i]);
            sum += one * one;
        }
        sum = in_double(sum, parts);
        if (threadIdx.x == 0) partials[chunk] = sum;
    }
}

extern "C" __global__ void __launch_bounds__(256) square_sum(const double* partials, float* out, unsigned long long adds) {
    __shared__ double parts[8];
    double sum = 0.0;
    if (blockIdx.x > 0) return;
    for (unsigned long long i = threadIdx.x; i < CHUNKS; i += 256) sum += partials[i];
    sum = in_double(sum, parts);
    if (threadIdx.x == 0) out[0] = adds & 1 ? out[0] + (float)sum : (float)sum;
}
