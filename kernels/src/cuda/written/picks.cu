// The order of picks by the places that they name, from counts and without atomic additions. A pick is an index behind `ORIGIN`; each batch
// has `PICKS` of them and `LENGTH` places. Picks of `PAD`, and those that are no place, are left out.
FUNCTION long long place_of(const int* index, unsigned long long pick) {
    long long entry = (long long)index[pick] - ORIGIN;
    if (entry < 0 || entry >= (long long)LENGTH || index[pick] == PAD) return -1;
    return (long long)(pick / PICKS * LENGTH) + entry;
}

// The sum of the numbers of the threads up to this one. `sums` holds those of all threads until the next call.
FUNCTION unsigned int sum_so_far(unsigned int number, unsigned int* sums) {
    __syncthreads();
    sums[threadIdx.x] = number;
    __syncthreads();
    for (unsigned int by = 1; by < 256; by *= 2) {
        unsigned int other = threadIdx.x >= by ? sums[threadIdx.x - by] : 0;
        __syncthreads();
        sums[threadIdx.x] += other;
        __syncthreads();
    }
    return sums[threadIdx.x];
}

// By chunk, how many picks name each place; by pick, how many before it in its chunk name its place.
extern "C" __global__ void __launch_bounds__(256) count_picks(
    const int* index, unsigned int* counts, unsigned int* ranks, unsigned long long adds
) {
    __shared__ long long places[256];
    for (unsigned long long chunk = blockIdx.x; chunk < CHUNKS; chunk += gridDim.x) {
        unsigned int* own = counts + chunk * PLACES;
        for (unsigned long long place = threadIdx.x; place < PLACES; place += 256) own[place] = 0;
        unsigned long long end = (chunk + 1) * CHUNK < ALL ? (chunk + 1) * CHUNK : ALL;
        for (unsigned long long start = chunk * CHUNK; start < end; start += 256) {
            unsigned long long pick = start + threadIdx.x;
            long long place = pick < end ? place_of(index, pick) : -1;
            places[threadIdx.x] = place;
            __syncthreads();
            unsigned int before = place < 0 ? 0 : own[place], behind = 0;
            for (unsigned int i = 0; i < 256; i++) {
                before += i < threadIdx.x && places[i] == place;
                behind += i > threadIdx.x && places[i] == place;
            }
            __syncthreads();
            if (place >= 0) ranks[pick] = before;
            if (place >= 0 && behind == 0) own[place] = before + 1;
        }
    }
}

// By place, the picks of earlier chunks for each chunk, the picks of all, and those of earlier places of its 256; and the picks of those 256.
extern "C" __global__ void __launch_bounds__(256) offset_picks(
    unsigned int* counts, unsigned int* starts, unsigned int* totals, unsigned int* bases, unsigned long long adds
) {
    __shared__ unsigned int sums[256];
    for (unsigned long long group = blockIdx.x; group * 256 < PLACES; group += gridDim.x) {
        unsigned long long place = group * 256 + threadIdx.x;
        unsigned int total = 0;
        for (unsigned long long chunk = 0; place < PLACES && chunk < CHUNKS; chunk++) {
            unsigned int here = counts[chunk * PLACES + place];
            counts[chunk * PLACES + place] = total;
            total += here;
        }
        unsigned int sum = sum_so_far(total, sums);
        if (place < PLACES) starts[place] = sum - total;
        if (place < PLACES) totals[place] = total;
        if (threadIdx.x == 255) bases[group] = sum;
    }
}
