// The elements whose index names the result's.
extern "C" __global__ void __launch_bounds__(256) scatter(const T_X* x, const int* index, T_OUT* out, unsigned long long adds) {
    for (unsigned long long i = FIRST_THREAD; i < N; i += THREADS) {
        unsigned long long block = i / INNER / LENGTH;
        long long entry = (long long)(i / INNER % LENGTH) + ORIGIN;
        const int* picks = index + block / OUTER * PICKS;
        float sum = 0.0f;
        for (unsigned long long pick = 0; pick < PICKS; pick++) {
            if (picks[pick] == entry) sum += LOAD_X(x[(block * PICKS + pick) * INNER + i % INNER]);
        }
        LEAVE(i, sum);
    }
}
