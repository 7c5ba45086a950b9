// The sums of the rows that name one place, in their order, without atomic additions: a stable counting sort of the picks by the places that
// they name, and sums over its runs. A pick is an index behind `ORIGIN`; each batch has `PICKS` of them and `LENGTH` places. Picks of `PAD`,
// and those that are no place, are left out.
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
