// Rows that come back from experts. Without weights `weights` is not read.
#ifdef WEIGHTED
#define WEIGHT(choice) LOAD_WEIGHT(weights[choice])
#else
#define WEIGHT(choice) 1.0f
#endif

extern "C" __global__ void __launch_bounds__(256) combine(
    const T_X* x, const T_WEIGHT* weights, const int* places, T_OUT* out, unsigned long long adds
) {
    for (unsigned long long i = FIRST_THREAD; i < ROUTING_GROUPS * TOKENS * H; i += THREADS) {
        unsigned long long token = i / H, group = token / TOKENS;
        float sum = 0.0f;
        for (unsigned long long k = 0; k < EACH; k++) {
            int place = places[token * EACH + k];
            if (place >= 0) sum += WEIGHT(token * EACH + k) * LOAD_X(x[(group * EXPERTS * CAPACITY + place) * H + i % H]);
        }
        LEAVE(i, sum);
    }
}
