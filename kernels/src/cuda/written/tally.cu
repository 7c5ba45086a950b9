// What the run reports: the numbers of choices and of those that were dropped.
extern "C" __global__ void __launch_bounds__(256) tally(const int* counts, unsigned long long* all, unsigned long long adds) {
    if (FIRST_THREAD > 0) return;
    unsigned long long chosen = 0, dropped = 0;
    for (unsigned long long i = 0; i < ROUTING_GROUPS * EXPERTS; i++) {
        chosen += counts[i];
        dropped += counts[i] > (long long)CAPACITY ? counts[i] - CAPACITY : 0;
    }
    all[0] += chosen;
    all[1] += dropped;
}
