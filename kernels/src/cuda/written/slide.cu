// Along a dim the result's element `i` is the operand's element `FIRST + i * STEP`, or 0. With a start, which is held within `MOST`, it
// lies `START` times as far on.
FUNCTION void slid(const T_X* x, long long start, T_OUT* out, unsigned long long adds) {
    for (unsigned long long i = FIRST_THREAD; i < N; i += THREADS) {
        long long place = FIRST + (long long)(i / INNER % TO) * STEP + START * start;
        int is_there = place >= 0 && place < (long long)FROM;
        unsigned long long at = is_there ? (i / INNER / TO * FROM + (unsigned long long)place) * INNER + i % INNER : 0;
        LEAVE(i, is_there ? LOAD_X(x[at]) : 0);
    }
}

extern "C" __global__ void __launch_bounds__(256) slide(const T_X* x, T_OUT* out, unsigned long long adds) { slid(x, 0, out, adds); }

extern "C" __global__ void __launch_bounds__(256) slide_from(const T_X* x, const int* from, T_OUT* out, unsigned long long adds) {
    long long start = from[0] < 0 ? 0 : from[0];
    slid(x, start > MOST ? MOST : start, out, adds);
}
