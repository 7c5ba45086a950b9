// A warp for each choice.
extern "C" __global__ void __launch_bounds__(256) combine_dw(
    const T_X* x, const T_Y* y, const int* places, T_OUT* out, unsigned long long adds
) {
    for (unsigned long long choice = FIRST_THREAD / 32; choice < ROUTING_GROUPS * CHOICES; choice += THREADS / 32) {
        int place = places[choice];
        float sum = 0.0f;
        for (unsigned long long h = threadIdx.x % 32; place >= 0 && h < H; h += 32) {
            unsigned long long row = choice / CHOICES * EXPERTS * CAPACITY + place;
            sum += LOAD_X(x[choice / EACH * H + h]) * LOAD_Y(y[row * H + h]);
        }
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) LEAVE(choice, sum);
    }
}
