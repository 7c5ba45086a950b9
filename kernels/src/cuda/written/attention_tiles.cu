// Attention on tensor cores, after Dao, "FlashAttention-2" (2023). A block keeps rows of one side, 16 for each warp, and goes through the rows
// of the other side by steps of STEP rows, which come through STAGES tiles of shared memory.

#define OWN_ROWS (16 * WARPS)
#define QUERY_STEPS ((unsigned int)((S + STEP - 1) / STEP))
#define KEY_STEPS ((unsigned int)((T + STEP - 1) / STEP))
#define QUERY_BLOCKS ((S + OWN_ROWS - 1) / OWN_ROWS)
#define KEY_BLOCKS ((T + OWN_ROWS - 1) / OWN_ROWS)
// Chunks of 16 bytes of a row.
#define KEY_CHUNKS ((unsigned int)(D / 8))
#define VALUE_CHUNKS ((unsigned int)(C / 8))

// Products give a lane two rows of its warp, 8 apart, and of every 8 columns two neighbours: numbers 0 and 1 are of the first row.
#define LANE (threadIdx.x % 32)
#define OWN_ROW(number) (threadIdx.x / 32 * 16 + LANE / 4 + (number) / 2 * 8)
#define COLUMN(eight, number) (8 * (eight) + LANE % 4 * 2 + (number) % 2)

// The place of a chunk in a tile: equal chunks of eight rows in turn are in different banks.
FUNCTION unsigned int chunk_at(unsigned int row, unsigned int chunk, unsigned int chunks) {
    unsigned int exchanged = chunks % 8 == 0 ? 8 : chunks % 4 == 0 ? 4 : 2;
    return row * chunks + (chunk ^ row / (8 / exchanged) % exchanged);
}

// Begins to copy rows to a tile, with zeros behind the last one.
FUNCTION void bring(uint4* tile, unsigned int rows, unsigned int chunks, const T_X* from, unsigned long long stride, unsigned long long there) {
    for (unsigned int i = threadIdx.x; i < rows * chunks; i += 32 * WARPS) {
        unsigned int row = i / chunks, chunk = i % chunks;
        unsigned long long at = row < there ? row * stride + 8 * chunk : 0;
        cp_async(tile + chunk_at(row, chunk, chunks), from + at, row < there ? 16u : 0u);
    }
}

// The left operand of a product: 16 rows of a tile, and 16 terms from a chunk on.
FUNCTION void left_of_tile(unsigned int* left, const uint4* tile, unsigned int row, unsigned int chunk, unsigned int chunks) {
    ldmatrix_x4(left, tile + chunk_at(row + LANE % 16, chunk + LANE / 16, chunks));
}

// The same of the warp's rows of a tensor, with zeros behind the last one.
FUNCTION void left_of_rows(unsigned int* left, const T_X* from, unsigned long long stride, unsigned long long there, unsigned int chunk) {
    #pragma unroll
    for (unsigned int i = 0; i < 4; i++) {
        unsigned int row = OWN_ROW(i % 2 * 2);
        left[i] = row < there ? *(const unsigned int*)(from + row * stride + 8 * (chunk + i / 2) + LANE % 4 * 2) : 0u;
    }
}

// The same of numbers that a product gave, rounded: 16 columns from one on.
FUNCTION void left_of_numbers(unsigned int* left, float (*numbers)[4], unsigned int sixteen) {
    #pragma unroll
    for (unsigned int i = 0; i < 4; i++) {
        left[i] = PACK(numbers[2 * sixteen + i / 2][i % 2 * 2], numbers[2 * sixteen + i / 2][i % 2 * 2 + 1]);
    }
}

// Adds products by the rows of a tile: its rows are columns, and 16 elements of each, from a chunk on, are terms.
FUNCTION void multiply_by_rows(float (*sums)[4], const unsigned int* left, const uint4* tile, unsigned int chunk, unsigned int chunks) {
    #pragma unroll
    for (unsigned int i = 0; i < STEP / 16; i++) {
        unsigned int right[4];
        ldmatrix_x4(right, tile + chunk_at(16 * i + LANE / 16 * 8 + LANE % 8, chunk + LANE / 8 % 2, chunks));
        MULTIPLY(sums[2 * i], left, right);
        MULTIPLY(sums[2 * i + 1], left, right + 2);
    }
}

// Adds products by the columns of a tile: 16 of its rows are terms.
FUNCTION void multiply_by_columns(float (*sums)[4], const unsigned int* left, const uint4* tile, unsigned int row, unsigned int chunks) {
    #pragma unroll
    for (unsigned int i = 0; i < chunks / 2; i++) {
        unsigned int right[4];
        ldmatrix_x4_trans(right, tile + chunk_at(row + LANE % 16, 2 * i + LANE / 16, chunks));
        MULTIPLY(sums[2 * i], left, right);
        MULTIPLY(sums[2 * i + 1], left, right + 2);
    }
}

// A block's first query or key, the first of its batch, and the first rows of its head.
typedef struct { unsigned int first; unsigned long long queries, keys, rows, key_rows; } Block;

// The query or key of a number of a lane's: those of the block are by rows, those of a step by columns.
#define OWN(block, number) ((block).first + OWN_ROW((number) % 4))
#define OF_STEP(step, number) ((step) * STEP + COLUMN((number) / 4, number))

// A bit for each of the lane's numbers of a step: which queries see the key, and which weights dropout keeps. To find them one by one, and not
// where they are needed, takes few registers.
FUNCTION unsigned int seen_of_step(
    Block own, unsigned int step, int own_are_keys, const int* qpos, const int* kpos, const int* qseg, const int* kseg
) {
    unsigned int bits = 0;
    #pragma unroll 1
    for (unsigned int i = 0; i < STEP / 2; i++) {
        unsigned int query = own_are_keys ? OF_STEP(step, i) : OWN(own, i), key = own_are_keys ? OWN(own, i) : OF_STEP(step, i);
        if (query < S && key < T && SEES(own.queries + query, own.keys + key)) bits |= 1u << i;
    }
    return bits;
}

// `rows`: the first row of the head of the queries.
FUNCTION unsigned int kept_of_step(
    Block own, unsigned long long rows, unsigned int step, int own_are_keys, unsigned long long key, unsigned long long first
) {
#ifdef DROPOUT
    unsigned int bits = 0;
    #pragma unroll 1
    for (unsigned int i = 0; i < STEP / 2; i++) {
        unsigned int query = own_are_keys ? OF_STEP(step, i) : OWN(own, i), at = own_are_keys ? OWN(own, i) : OF_STEP(step, i);
        if (kept(key, first, rows + query * G * R, at) > 0.0f) bits |= 1u << i;
    }
    return bits;
#else
    return 0xffffffffu;
#endif
}
#define IS_SET(bits, number) ((bits) >> (number) & 1u)
#ifdef DROPOUT
#define FACTOR(bits, number) (IS_SET(bits, number) ? KEEP : 0.0f)
#else
#define FACTOR(bits, number) 1.0f
#endif

FUNCTION void clear(float (*numbers)[4], unsigned int count) {
    #pragma unroll
    for (unsigned int i = 0; i < count; i++) {
        #pragma unroll
        for (unsigned int j = 0; j < 4; j++) numbers[i][j] = 0.0f;
    }
}

// Leaves a factor of the numbers of one of the lane's rows.
FUNCTION void leave_row(T_X* to, float (*numbers)[4], unsigned int count, unsigned int half, float factor) {
    #pragma unroll
    for (unsigned int i = 0; i < count; i++) {
        *(unsigned int*)(to + COLUMN(i, 0)) = PACK(numbers[i][2 * half] * factor, numbers[i][2 * half + 1] * factor);
    }
}

// The least and the greatest position, and the least and the greatest segment, of some rows.
FUNCTION int4 joined(int4 a, int4 b) {
    return make_int4(a.x < b.x ? a.x : b.x, a.y > b.y ? a.y : b.y, a.z < b.z ? a.z : b.z, a.w > b.w ? a.w : b.w);
}

FUNCTION int some_see(int4 queries, int4 keys) {
    return queries.w >= keys.z && keys.w >= queries.z && (!CAUSAL || keys.x <= queries.y) && IS_NEAR(queries.x, keys.y);
}

FUNCTION int all_see(int4 queries, int4 keys) {
    int is_one = queries.z == queries.w && keys.z == keys.w && queries.z == keys.z;
    return is_one && (!CAUSAL || keys.y <= queries.x) && IS_NEAR(queries.y, keys.x);
}

// The bounds of each step of a batch's queries, then of its keys: a warp for each.
extern "C" __global__ void __launch_bounds__(256) attention_bounds(
    const int* qpos, const int* kpos, const int* qseg, const int* kseg, int4* bounds, unsigned long long adds
) {
    for (unsigned long long at = FIRST_THREAD / 32; at < B * (QUERY_STEPS + KEY_STEPS); at += THREADS / 32) {
        int of_keys = at >= B * QUERY_STEPS;
        unsigned long long number = of_keys ? at - B * QUERY_STEPS : at, steps = of_keys ? KEY_STEPS : QUERY_STEPS, count = of_keys ? T : S;
        unsigned long long first = number % steps * STEP, end = first + STEP < count ? first + STEP : count;
        const int* position = (of_keys ? kpos : qpos) + number / steps * count;
        const int* segment = (of_keys ? kseg : qseg) + number / steps * count;
        int4 all = make_int4(position[first], position[first], segment[first], segment[first]);
        for (unsigned long long i = first + LANE; i < end; i += 32) {
            all = joined(all, make_int4(position[i], position[i], segment[i], segment[i]));
        }
        for (int by = 16; by > 0; by /= 2) {
            int x = __shfl_xor_sync(0xffffffffu, all.x, by), y = __shfl_xor_sync(0xffffffffu, all.y, by);
            int z = __shfl_xor_sync(0xffffffffu, all.z, by), w = __shfl_xor_sync(0xffffffffu, all.w, by);
            all = joined(all, make_int4(x, y, z, w));
        }
        if (LANE == 0) bounds[at] = all;
    }
}

// The bounds of the block's rows, from those of their steps.
FUNCTION int4 own_bounds(const int4* bounds, unsigned int first, unsigned int steps) {
    int4 all = bounds[first];
    for (unsigned int i = first + 1; i < first + OWN_ROWS / STEP && i < steps; i++) all = joined(all, bounds[i]);
    return all;
}

// The next step, from one on, in which a query sees a key; `steps` if there is none. The block's rows are queries or keys.
FUNCTION unsigned int next_step(int4 own, const int4* bounds, unsigned int from, unsigned int steps, int own_are_keys) {
    for (; from < steps; from += 32) {
        unsigned int at = from + LANE;
        int sees = at < steps && (own_are_keys ? some_see(bounds[at], own) : some_see(own, bounds[at]));
        unsigned int found = __ballot_sync(0xffffffffu, sees);
        if (found) return from + (unsigned int)__ffs((int)found) - 1;
    }
    return steps;
}

FUNCTION Block block_of(unsigned long long batch, unsigned long long head, unsigned long long r, unsigned long long first) {
    Block made;
    made.first = (unsigned int)first;
    made.queries = batch * S;
    made.keys = batch * T;
    made.rows = (made.queries * G + head) * R + r;
    made.key_rows = made.keys * G + head;
    return made;
}

// Heads that have the same keys are neighbours; late queries, which may see more keys, are first.
FUNCTION Block queries_of(unsigned long long number) {
    unsigned long long late = number / R % QUERY_BLOCKS, head = number / R / QUERY_BLOCKS;
    return block_of(head / G, head % G, number % R, (QUERY_BLOCKS - 1 - late) * OWN_ROWS);
}

// Begins to copy a step of keys and values.
FUNCTION void bring_keys(uint4* stage, const T_X* k, const T_X* v, unsigned long long rows, unsigned int step) {
    unsigned int first = step * STEP;
    bring(stage, STEP, KEY_CHUNKS, k + (rows + first * G) * D, G * D, T - first);
    bring(stage + STEP * KEY_CHUNKS, STEP, VALUE_CHUNKS, v + (rows + first * G) * C, G * C, T - first);
}
#define KEY_STAGE (STEP * (KEY_CHUNKS + VALUE_CHUNKS))

