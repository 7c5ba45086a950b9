// The sum, or the maximum, of `COUNT` elements: a warp for each result.
extern "C" __global__ void __launch_bounds__(256) gather(const T_X* x, T_OUT* out, unsigned long long adds) {
    for (unsigned long long i = FIRST_THREAD / 32; i < N; i += THREADS / 32) {
#ifdef LARGEST
        float all = __uint_as_float(0xff800000u);
        for (unsigned long long k = threadIdx.x % 32; k < COUNT; k += 32) all = larger(all, LOAD_X(x[PLACE(i * COUNT + k)]));
        all = warp_max(all);
#else
        float all = 0.0f;
        for (unsigned long long k = threadIdx.x % 32; k < COUNT; k += 32) all += LOAD_X(x[PLACE(i * COUNT + k)]);
        all = warp_sum(all);
#endif
        if (threadIdx.x % 32 == 0) LEAVE(i, all);
    }
}
