// Of a group's choices a thread deals those of one expert in order: `places` has the row of each choice, `sources` the choice of each row,
// -1 where there is none, and `counts` how many chose each expert.
extern "C" __global__ void __launch_bounds__(256) deal(
    const int* index, int* places, int* sources, int* counts, unsigned long long adds
) {
    for (unsigned long long i = FIRST_THREAD; i < ROUTING_GROUPS * EXPERTS; i += THREADS) {
        unsigned long long first = i / EXPERTS * CHOICES;
        int count = 0;
        for (unsigned long long row = 0; row < CAPACITY; row++) sources[i * CAPACITY + row] = -1;
        for (unsigned long long choice = 0; choice < CHOICES; choice++) {
            long long expert = (long long)index[first + choice] - ORIGIN;
            int is_elsewhere = expert < 0 || expert >= (long long)EXPERTS;
            if (is_elsewhere && i % EXPERTS == 0) places[first + choice] = -1;
            if (expert != (long long)(i % EXPERTS)) continue;
            int is_taken = count < (long long)CAPACITY;
            places[first + choice] = is_taken ? (int)((i % EXPERTS) * CAPACITY) + count : -1;
            if (is_taken) sources[i * CAPACITY + count] = (int)choice;
            count++;
        }
        counts[i] = count;
    }
}
