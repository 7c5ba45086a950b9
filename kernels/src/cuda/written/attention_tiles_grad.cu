// The gradients. Weights are computed again, from the saved logarithms of sums.

// Of each query of a head, in order, the logarithm of the sum to base 2, and the sum of the result times its gradient. A query without a sum,
// and what fills the last step, has a sum that makes all of its weights zero. A warp for each.
extern "C" __global__ void __launch_bounds__(256) attention_sums(
    const T_X* out, const T_X* dout, const float* lse, float2* sums, unsigned long long adds
) {
    for (unsigned long long at = FIRST_THREAD / 32; at < B * G * R * QUERY_STEPS * STEP; at += THREADS / 32) {
        unsigned long long query = at % (QUERY_STEPS * STEP), head = at / (QUERY_STEPS * STEP);
        unsigned long long row = (head / (G * R) * S + query) * G * R + head % (G * R);
        float delta = 0.0f, sum = NOTHING;
        if (query < S) {
            for (unsigned int i = LANE; i < C; i += 32) delta += LOAD_X(dout[row * C + i]) * LOAD_X(out[row * C + i]);
            sum = lse[row];
        }
        delta = warp_sum(delta);
        if (LANE == 0) sums[at] = make_float2(sum > NOTHING ? sum * 1.4426950408889634f : -NOTHING, delta);
    }
}

#define SUMS_OF(batch, head, r) (sums + (((batch) * G + (head)) * R + (r)) * QUERY_STEPS * STEP)

// Each block has queries of a head, and goes through their keys.
extern "C" __global__ void __launch_bounds__(32 * WARPS) attention_tiles_dq(
    const T_X* q, const T_X* k, const T_X* v, const T_X* dout, const float2* sums, const int* qpos, const int* kpos, const int* qseg,
    const int* kseg, const int4* bounds, T_X* dq, unsigned long long adds, const unsigned long long* random, unsigned long long microbatch,
    unsigned long long index
) {
    extern __shared__ uint4 tiles[];
    DECLARE_KEY
    for (unsigned long long number = blockIdx.x; number < B * G * R * QUERY_BLOCKS; number += gridDim.x) {
        Block own = queries_of(number);
        const int4* of_keys = bounds + B * QUERY_STEPS + own.keys / T * KEY_STEPS;
        int4 of_own = own_bounds(bounds + own.queries / S * QUERY_STEPS, own.first / STEP, QUERY_STEPS);
        unsigned int at = next_step(of_own, of_keys, 0, KEY_STEPS, 0), ahead = at, slot = 0;
        for (unsigned int i = 0; i < STAGES - 1; i++) {
            if (ahead < KEY_STEPS) bring_keys(tiles + i * KEY_STAGE, k, v, own.key_rows, ahead);
            cp_async_commit();
            ahead = next_step(of_own, of_keys, ahead + 1, KEY_STEPS, 0);
        }
        unsigned int query[KEY_CHUNKS / 2][4], gradient[VALUE_CHUNKS / 2][4];
        unsigned long long first_row = own.rows + own.first * G * R;
        #pragma unroll
        for (unsigned int i = 0; i < KEY_CHUNKS / 2; i++) left_of_rows(query[i], q + first_row * D, G * R * D, S - own.first, 2 * i);
        #pragma unroll
        for (unsigned int i = 0; i < VALUE_CHUNKS / 2; i++) left_of_rows(gradient[i], dout + first_row * C, G * R * C, S - own.first, 2 * i);
        float2 of_row[2];
        for (unsigned int half = 0; half < 2; half++) {
            unsigned int row = OWN(own, 2 * half);
            of_row[half] = make_float2(-NOTHING, 0.0f);
            if (row < S) of_row[half] = SUMS_OF(own.queries / S, own.key_rows % G, own.rows % R)[row];
        }
        float all[KEY_CHUNKS][4];
        clear(all, KEY_CHUNKS);
        while (at < KEY_STEPS) {
            cp_async_wait(STAGES - 2);
            __syncthreads();
            // All have left the stage before the last one.
            if (ahead < KEY_STEPS) bring_keys(tiles + (slot + STAGES - 1) % STAGES * KEY_STAGE, k, v, own.key_rows, ahead);
            cp_async_commit();
            const uint4* stage = tiles + slot * KEY_STAGE;
            unsigned int keeps = kept_of_step(own, own.rows, at, 0, DROPOUT_KEY, microbatch * MICROBATCH);
            float weights[STEP / 8][4], scores[STEP / 8][4];
            clear(weights, STEP / 8);
            clear(scores, STEP / 8);
            #pragma unroll
            for (unsigned int i = 0; i < KEY_CHUNKS / 2; i++) multiply_by_rows(weights, query[i], stage, 2 * i, KEY_CHUNKS);
            #pragma unroll
            for (unsigned int i = 0; i < VALUE_CHUNKS / 2; i++) {
                multiply_by_rows(scores, gradient[i], stage + STEP * KEY_CHUNKS, 2 * i, VALUE_CHUNKS);
            }
            int is_full = all_see(of_own, of_keys[at]) && (at + 1) * STEP <= T;
            unsigned int seen = is_full ? 0xffffffffu : seen_of_step(own, at, 0, qpos, kpos, qseg, kseg);
            #pragma unroll
            for (unsigned int i = 0; i < STEP / 2; i++) {
                float product = bounded(weights[i / 4][i % 4]), weight = exp2_approx(product * SCALE_TO_BASE_2 - of_row[i % 4 / 2].x);
                if (!IS_SET(seen, i)) weight = 0.0f;
                scores[i / 4][i % 4] = weight * (scores[i / 4][i % 4] * FACTOR(keeps, i) - of_row[i % 4 / 2].y) * slope(product);
            }
            #pragma unroll
            for (unsigned int i = 0; i < STEP / 16; i++) {
                unsigned int left[4];
                left_of_numbers(left, scores, i);
                multiply_by_columns(all, left, stage, 16 * i, KEY_CHUNKS);
            }
            slot = (slot + 1) % STAGES;
            at = next_step(of_own, of_keys, at + 1, KEY_STEPS, 0);
            ahead = next_step(of_own, of_keys, ahead + 1, KEY_STEPS, 0);
        }
        for (unsigned int half = 0; half < 2; half++) {
            unsigned int row = OWN(own, 2 * half);
            if (row < S) leave_row(dq + (own.rows + row * G * R) * D, all, KEY_CHUNKS, half, SCALE);
        }
        __syncthreads();
    }
}

// Early keys, which more queries may see, are first.
FUNCTION Block keys_of(unsigned long long number) {
    unsigned long long head = number / KEY_BLOCKS;
    return block_of(head / G, head % G, 0, number % KEY_BLOCKS * OWN_ROWS);
}

// Steps go through the queries of one head after another. Those from this number on are none.
#define ALL_STEPS ((unsigned int)R * QUERY_STEPS)

FUNCTION unsigned int next_of_heads(int4 own, const int4* bounds, unsigned int from) {
    while (from < ALL_STEPS) {
        unsigned int r = from / QUERY_STEPS, step = next_step(own, bounds, from % QUERY_STEPS, QUERY_STEPS, 1);
        if (step < QUERY_STEPS) return r * QUERY_STEPS + step;
        from = (r + 1) * QUERY_STEPS;
    }
    return ALL_STEPS;
}

// Begins to copy a step of queries, the gradients of their results, and their sums.
FUNCTION void bring_queries(uint4* stage, const T_X* q, const T_X* dout, const float2* sums, Block own, unsigned int step) {
    unsigned int r = step / QUERY_STEPS, first = step % QUERY_STEPS * STEP;
    unsigned long long row = own.rows + r + first * G * R;
    bring(stage, STEP, KEY_CHUNKS, q + row * D, G * R * D, S - first);
    bring(stage + STEP * KEY_CHUNKS, STEP, VALUE_CHUNKS, dout + row * C, G * R * C, S - first);
    const float2* from = SUMS_OF(own.queries / S, own.key_rows % G, r) + first;
    for (unsigned int i = threadIdx.x; i < STEP / 2; i += 32 * WARPS) {
        cp_async(stage + STEP * (KEY_CHUNKS + VALUE_CHUNKS) + i, from + 2 * i, 16);
    }
}
#define QUERY_STAGE (STEP * (KEY_CHUNKS + VALUE_CHUNKS) + STEP / 2)

// Each block has keys of a head, and goes through the queries of all heads that have them. Its products have keys for rows.
extern "C" __global__ void __launch_bounds__(32 * WARPS) attention_tiles_dkv(
    const T_X* q, const T_X* k, const T_X* v, const T_X* dout, const float2* sums, const int* qpos, const int* kpos, const int* qseg,
    const int* kseg, const int4* bounds, T_X* dk, T_X* dv, unsigned long long adds, const unsigned long long* random,
    unsigned long long microbatch, unsigned long long index
) {
    extern __shared__ uint4 tiles[];
    DECLARE_KEY
    uint4* key_tile = tiles;
    uint4* value_tile = tiles + OWN_ROWS * KEY_CHUNKS;
    uint4* stages = value_tile + OWN_ROWS * VALUE_CHUNKS;
    for (unsigned long long number = blockIdx.x; number < B * G * KEY_BLOCKS; number += gridDim.x) {
        Block own = keys_of(number);
        const int4* of_queries = bounds + own.queries / S * QUERY_STEPS;
        const int4* of_keys = bounds + B * QUERY_STEPS + own.keys / T * KEY_STEPS;
        int4 of_own = own_bounds(of_keys, own.first / STEP, KEY_STEPS);
        unsigned int at = next_of_heads(of_own, of_queries, 0), ahead = at, slot = 0;
        unsigned long long first_key = own.key_rows + own.first * G;
        if (at < ALL_STEPS) {
            bring(key_tile, OWN_ROWS, KEY_CHUNKS, k + first_key * D, G * D, T - own.first);
            bring(value_tile, OWN_ROWS, VALUE_CHUNKS, v + first_key * C, G * C, T - own.first);
        }
        for (unsigned int i = 0; i < STAGES - 1; i++) {
            if (ahead < ALL_STEPS) bring_queries(stages + i * QUERY_STAGE, q, dout, sums, own, ahead);
            cp_async_commit();
            ahead = next_of_heads(of_own, of_queries, ahead + 1);
        }
        float keys[KEY_CHUNKS][4], values[VALUE_CHUNKS][4];
        clear(keys, KEY_CHUNKS);
        clear(values, VALUE_CHUNKS);
        while (at < ALL_STEPS) {
            cp_async_wait(STAGES - 2);
            __syncthreads();
            // All have left the stage before the last one.
            if (ahead < ALL_STEPS) bring_queries(stages + (slot + STAGES - 1) % STAGES * QUERY_STAGE, q, dout, sums, own, ahead);
            cp_async_commit();
            const uint4* stage = stages + slot * QUERY_STAGE;
            const uint4* gradients = stage + STEP * KEY_CHUNKS;
            const float2* of_columns = (const float2*)(gradients + STEP * VALUE_CHUNKS);
            unsigned int step = at % QUERY_STEPS, left[4];
            unsigned int keeps = kept_of_step(own, own.rows + at / QUERY_STEPS, step, 1, DROPOUT_KEY, microbatch * MICROBATCH);
            float weights[STEP / 8][4], scores[STEP / 8][4];
            clear(weights, STEP / 8);
            #pragma unroll
            for (unsigned int i = 0; i < KEY_CHUNKS / 2; i++) {
                left_of_tile(left, key_tile, threadIdx.x / 32 * 16, 2 * i, KEY_CHUNKS);
                multiply_by_rows(weights, left, stage, 2 * i, KEY_CHUNKS);
            }
            int is_full = all_see(of_queries[step], of_own) && own.first + OWN_ROWS <= T;
            unsigned int seen = is_full ? 0xffffffffu : seen_of_step(own, step, 1, qpos, kpos, qseg, kseg);
            #pragma unroll
            for (unsigned int i = 0; i < STEP / 2; i++) {
                float product = bounded(weights[i / 4][i % 4]);
                float weight = exp2_approx(product * SCALE_TO_BASE_2 - of_columns[COLUMN(i / 4, i)].x);
                if (!IS_SET(seen, i)) weight = 0.0f;
                weights[i / 4][i % 4] = weight * slope(product);
                scores[i / 4][i % 4] = weight * FACTOR(keeps, i);
            }
            #pragma unroll
            for (unsigned int i = 0; i < STEP / 16; i++) {
                left_of_numbers(left, scores, i);
                multiply_by_columns(values, left, gradients, 16 * i, VALUE_CHUNKS);
            }
            clear(scores, STEP / 8);
            #pragma unroll
            for (unsigned int i = 0; i < VALUE_CHUNKS / 2; i++) {
                left_of_tile(left, value_tile, threadIdx.x / 32 * 16, 2 * i, VALUE_CHUNKS);
                multiply_by_rows(scores, left, gradients, 2 * i, VALUE_CHUNKS);
            }
            #pragma unroll
            for (unsigned int i = 0; i < STEP / 2; i++) {
                float gradient = scores[i / 4][i % 4] * FACTOR(keeps, i) - of_columns[COLUMN(i / 4, i)].y;
                scores[i / 4][i % 4] = weights[i / 4][i % 4] * gradient;
            }
            #pragma unroll
            for (unsigned int i = 0; i < STEP / 16; i++) {
                left_of_numbers(left, scores, i);
                multiply_by_columns(keys, left, stage, 16 * i, KEY_CHUNKS);
            }
            slot = (slot + 1) % STAGES;
            at = next_of_heads(of_own, of_queries, at + 1);
            ahead = next_of_heads(of_own, of_queries, ahead + 1);
        }
        for (unsigned int half = 0; half < 2; half++) {
            unsigned int row = OWN(own, 2 * half);
            if (row >= T) continue;
            leave_row(dk + (own.key_rows + row * G) * D, keys, KEY_CHUNKS, half, SCALE);
            leave_row(dv + (own.key_rows + row * G) * C, values, VALUE_CHUNKS, half, 1.0f);
        }
        __syncthreads();
    }
}
