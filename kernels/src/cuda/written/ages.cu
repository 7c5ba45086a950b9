// How long ago each exponent was seen. The result holds the old ages.
extern "C" __global__ void __launch_bounds__(256) age(const float* seen, const float* clip, float* ages, unsigned long long adds) {
    if (!(clip[0] > 0.0f)) return;
    for (unsigned long long i = FIRST_THREAD; i < N; i += THREADS) ages[i] = seen[i] > 0.0f ? 0.0f : ages[i] + 1.0f;
}
