// The choices of each expert in order: `places` has the row of each choice, `sources` the choice of each row, -1 where there is none. `totals`
// has how many chose each expert.
extern "C" __global__ void __launch_bounds__(256) deal(
    const int* index, const unsigned int* counts, const unsigned int* ranks, const unsigned int* totals, int* places, int* sources,
    unsigned long long adds
) {
    for (unsigned long long choice = FIRST_THREAD; choice < ALL; choice += THREADS) {
        long long expert = place_of(index, choice);
        unsigned long long row = expert < 0 ? CAPACITY : counts[choice / CHUNK * PLACES + expert] + ranks[choice];
        places[choice] = row < CAPACITY ? (int)(expert % LENGTH * CAPACITY + row) : -1;
        if (row < CAPACITY) sources[expert * CAPACITY + row] = (int)(choice % PICKS);
    }
    for (unsigned long long i = FIRST_THREAD; i < PLACES * CAPACITY; i += THREADS) {
        if (i % CAPACITY >= totals[i / CAPACITY]) sources[i] = -1;
    }
}
