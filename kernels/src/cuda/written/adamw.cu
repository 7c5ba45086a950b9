// The update of kernels::cpu::optimizer, operation by operation. The results hold the old values.
extern "C" __global__ void __launch_bounds__(256) adamw(
    const float* g, const float* clip, const float* lr, const float* step, float* w, float* m, float* v, unsigned long long adds
) {
    float scale = clip[0];
    if (!(scale > 0.0f)) return;
    float bias1 = (float)(1.0 - pow(BETA1, (double)step[0])), bias2 = (float)(1.0 - pow(BETA2, (double)step[0]));
    float keep = 1.0f - lr[0] * WEIGHT_DECAY, rate = lr[0] / bias1, root = 1.0f / sqrtf(bias2);
    for (unsigned long long i = FIRST_THREAD; i < N; i += THREADS) {
        float gradient = g[i] * scale;
        float mean = FIRST * m[i] + (1.0f - FIRST) * gradient;
        float square = SECOND * v[i] + (1.0f - SECOND) * gradient * gradient;
        m[i] = mean;
        v[i] = square;
        w[i] = w[i] * keep - rate * mean / (sqrtf(square) * root + EPS);
    }
}
