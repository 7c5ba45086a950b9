// Blocks of tensors between the memories of ranks. Sizes and strides are arguments, counted in runs of WIDTH elements: one kernel is for all
// exchanges of a type.

typedef struct __align__(BYTES) { T_X at[WIDTH]; } Run;
typedef struct { unsigned long long sizes[DIMS], from[DIMS], to[DIMS]; } Block;
typedef struct { const Run* at[PEERS]; } Peers;

typedef struct { const Run* from; Run* to; unsigned long long runs; } Piece;

typedef struct { unsigned long long from, to; } Places;

FUNCTION Places places(const Block* block, unsigned long long run) {
    Places places = {0, 0};
    for (int dim = DIMS - 1; dim >= 0; dim--) {
        unsigned long long size = block->sizes[dim], at = run % size;
        places.from += at * block->from[dim];
        places.to += at * block->to[dim];
        run /= size;
    }
    return places;
}

extern "C" __global__ void __launch_bounds__(256) move_block(const Run* from, Run* to, Block block, unsigned long long runs) {
    for (unsigned long long run = FIRST_THREAD; run < runs; run += THREADS) {
        Places at = places(&block, run);
        to[at.to] = from[at.from];
    }
}

// The filled rows of chunks, as many as `counts` says of each; the others become zeros. `first` is the block's start in the target.
extern "C" __global__ void __launch_bounds__(256) move_filled(const Run* from, Run* to, Block block, unsigned long long runs, const int* counts, unsigned long long first, unsigned long long chunk, unsigned long long row) {
    for (unsigned long long run = FIRST_THREAD; run < runs; run += THREADS) {
        Places at = places(&block, run);
        unsigned long long place = first + at.to;
        long long filled = counts[place / chunk];
        Run one;
        #pragma unroll
        for (int i = 0; i < WIDTH; i++) one.at[i] = 0;
        if ((long long)(place % chunk / row) < filled) one = from[at.from];
        to[at.to] = one;
    }
}

// A block moves a piece at a time.
extern "C" __global__ void __launch_bounds__(256) move_pieces(const Piece* pieces, unsigned long long count) {
    for (unsigned long long number = blockIdx.x; number < count; number += gridDim.x) {
        Piece piece = pieces[number];
        for (unsigned long long run = threadIdx.x; run < piece.runs; run += blockDim.x) piece.to[run] = piece.from[run];
    }
}

// In the order of the ranks, and rounded once.
extern "C" __global__ void __launch_bounds__(256) combine_ranks(Peers peers, Run* to, Block block, unsigned long long runs, unsigned long long ranks) {
    for (unsigned long long run = FIRST_THREAD; run < runs; run += THREADS) {
        Places at = places(&block, run);
        NUMBER all[WIDTH];
        for (unsigned long long rank = 0; rank < ranks; rank++) {
            Run one = peers.at[rank][at.from];
            #pragma unroll
            for (int i = 0; i < WIDTH; i++) all[i] = rank ? COMBINE(all[i], LOAD_X(one.at[i])) : LOAD_X(one.at[i]);
        }
        Run result;
        #pragma unroll
        for (int i = 0; i < WIDTH; i++) result.at[i] = STORE_X(all[i]);
        to[at.to] = result;
    }
}
