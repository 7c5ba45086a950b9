// The updates of kernels::cpu::optimizer, operation by operation. The results hold the old values.
extern "C" __global__ void __launch_bounds__(256) sgd(
    const float* g, const float* clip, const float* lr, float* w, unsigned long long adds
) {
    float scale = clip[0], rate = lr[0];
    if (!(scale > 0.0f)) SKIP
    for (unsigned long long i = FIRST_THREAD; i < N; i += THREADS) {
        w[i] -= rate * (g[i] * scale + WEIGHT_DECAY * w[i]);
        LEAVE_COPY(i);
    }
}

extern "C" __global__ void __launch_bounds__(256) sgd_momentum(
    const float* g, const float* clip, const float* lr, float* w, float* velocity,
    unsigned long long adds
) {
    float scale = clip[0], rate = lr[0];
    if (!(scale > 0.0f)) SKIP
    for (unsigned long long i = FIRST_THREAD; i < N; i += THREADS) {
        float step = MOMENTUM * velocity[i] + (g[i] * scale + WEIGHT_DECAY * w[i]);
        velocity[i] = step;
        w[i] -= rate * step;
        LEAVE_COPY(i);
    }
}

extern "C" __global__ void __launch_bounds__(256) sgd_nesterov(
    const float* g, const float* clip, const float* lr, float* w, float* velocity,
    unsigned long long adds
) {
    float scale = clip[0], rate = lr[0];
    if (!(scale > 0.0f)) SKIP
    for (unsigned long long i = FIRST_THREAD; i < N; i += THREADS) {
        float slope = g[i] * scale + WEIGHT_DECAY * w[i];
        float step = MOMENTUM * velocity[i] + slope;
        velocity[i] = step;
        w[i] -= rate * (slope + MOMENTUM * step);
        LEAVE_COPY(i);
    }
}
