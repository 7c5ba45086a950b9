// Rows that go to experts. Without weights `weights` is not read.
#ifdef WEIGHTED
#define WEIGHT(choice) LOAD_WEIGHT(weights[choice])
#else
#define WEIGHT(choice) 1.0f
#endif

extern "C" __global__ void __launch_bounds__(256) dispatch(
    const T_X* x, const T_WEIGHT* weights, const int* sources, T_OUT* out, unsigned long long adds
) {
    for (unsigned long long i = FIRST_THREAD; i < ROUTING_GROUPS * EXPERTS * CAPACITY * H; i += THREADS) {
        unsigned long long group = i / H / (EXPERTS * CAPACITY);
        int choice = sources[i / H];
        float number = 0.0f;
        if (choice >= 0) number += WEIGHT(group * CHOICES + choice) * LOAD_X(x[(group * TOKENS + choice / EACH) * H + i % H]);
        out[i] = STORE_OUT(number);
    }
}
