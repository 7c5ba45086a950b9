// Windows, each a number of elements some steps apart, add to the elements that they are of.
extern "C" __global__ void __launch_bounds__(256) fold(const T_X* x, T_OUT* out, unsigned long long adds) {
    for (unsigned long long i = FIRST_THREAD; i < N; i += THREADS) {
        unsigned long long outer = i / INNER / TO, place = i / INNER % TO;
        float sum = 0.0f;
        for (unsigned long long window = 0; window < WINDOWS && window * STRIDE <= place; window++) {
            unsigned long long behind = place - window * STRIDE, tap = behind / DILATION;
            if (behind % DILATION == 0 && tap < SIZE) sum += LOAD_X(x[((outer * WINDOWS + window) * SIZE + tap) * INNER + i % INNER]);
        }
        LEAVE(i, sum);
    }
}
