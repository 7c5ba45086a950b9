// The sums of the rows that name one place, in their order: the picks sorted by their places, and sums over the runs.
// Instead of the picks of 256 places those of all places before them.
extern "C" __global__ void __launch_bounds__(256) base_picks(unsigned int* bases, unsigned long long adds) {
    __shared__ unsigned int sums[256];
    unsigned int before = 0;
    if (blockIdx.x > 0) return;
    for (unsigned long long start = 0; start * 256 < PLACES; start += 256) {
        unsigned long long group = start + threadIdx.x;
        unsigned int own = group * 256 < PLACES ? bases[group] : 0, sum = sum_so_far(own, sums);
        if (group * 256 < PLACES) bases[group] = before + sum - own;
        before += sums[255];
    }
}

extern "C" __global__ void __launch_bounds__(256) order_picks(
    const int* index, const unsigned int* counts, const unsigned int* ranks, const unsigned int* starts, const unsigned int* bases,
    unsigned int* order, unsigned long long adds
) {
    for (unsigned long long pick = FIRST_THREAD; pick < ALL; pick += THREADS) {
        long long place = place_of(index, pick);
        if (place < 0) continue;
        order[starts[place] + bases[place / 256] + counts[pick / CHUNK * PLACES + place] + ranks[pick]] = (unsigned int)pick;
    }
}

// Each result sums its picks. With `ON_TOP` a sum begins with what is there, if it is added to that.
extern "C" __global__ void __launch_bounds__(256) add_picks(
    const T_X* x, const unsigned int* starts, const unsigned int* totals, const unsigned int* bases, const unsigned int* order, T_OUT* out,
    unsigned long long adds
) {
    for (unsigned long long i = FIRST_THREAD; i < N; i += THREADS) {
        unsigned long long block = i / INNER / LENGTH, batch = block / OUTER, place = batch * LENGTH + i / INNER % LENGTH;
        unsigned int total = totals[place];
        if (total == 0 && adds & 1) continue;
        const unsigned int* picks = order + starts[place] + bases[place / 256];
        const T_X* rows = x + (block - batch) * PICKS * INNER + i % INNER;
#ifdef ON_TOP
        float sum = adds & 1 ? LOAD_OUT(out[i]) : 0.0f;
#else
        float sum = 0.0f;
#endif
#pragma unroll 4
        for (unsigned int k = 0; k < total; k++) sum += LOAD_X(rows[picks[k] * INNER]);
#ifdef ON_TOP
        out[i] = STORE_OUT(sum);
#else
        LEAVE(i, sum);
#endif
    }
}
