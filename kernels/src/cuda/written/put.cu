// All of the operand to a part of the result.
extern "C" __global__ void __launch_bounds__(256) put(const T_X* x, T_OUT* out, unsigned long long adds) {
    for (unsigned long long i = FIRST_THREAD; i < N; i += THREADS) {
        unsigned long long place = PLACE(i);
        LEAVE(place, LOAD_X(x[i]));
    }
}
