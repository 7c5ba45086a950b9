// The update of kernels::cpu::optimizer, operation by operation. The results hold the old values.
FUNCTION float bias(double beta, unsigned int step) {
    double power = 1.0;
    for (; step != 0; step >>= 1, beta *= beta) {
        if (step & 1) power *= beta;
    }
    return (float)(1.0 - power);
}

extern "C" __global__ void __launch_bounds__(256) adamw(
    const float* g, const float* clip, const float* lr, const float* step, float* w, float* m, float* v,
    unsigned long long adds
) {
    __shared__ float biases[2];
    float scale = clip[0];
    if (!(scale > 0.0f)) SKIP
    if (threadIdx.x < 2) biases[threadIdx.x] = bias(threadIdx.x == 0 ? BETA1 : BETA2, (unsigned int)step[0]);
    __syncthreads();
    float keep = 1.0f - lr[0] * WEIGHT_DECAY, rate = lr[0] / biases[0], root = 1.0f / sqrtf(biases[1]);
    for (unsigned long long i = FIRST_THREAD; i < N; i += THREADS) {
        float gradient = g[i] * scale;
        float mean = FIRST * m[i] + (1.0f - FIRST) * gradient;
        float square = SECOND * v[i] + (1.0f - SECOND) * gradient * gradient;
        m[i] = mean;
        v[i] = square;
        w[i] = w[i] * keep - rate * mean / (sqrtf(square) * root + EPS);
        LEAVE_COPY(i);
    }
}
