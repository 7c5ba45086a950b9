// Scores become weights, relative to the greatest score so far; sums and results are made so, too. All are to the base 2. A lane's
// sums are of its own columns.
FUNCTION void weigh(float (*scores)[4], float* most, float* sums, float (*all)[4]) {
    #pragma unroll
    for (unsigned int half = 0; half < 2; half++) {
        float next = most[half];
        #pragma unroll
        for (unsigned int n = 0; n < STEP / 8; n++) next = larger(next, larger(scores[n][2 * half], scores[n][2 * half + 1]));
        next = larger(next, __shfl_xor_sync(0xffffffffu, next, 1));
        next = larger(next, __shfl_xor_sync(0xffffffffu, next, 2));
        float by = next == NOTHING ? 0.0f : next * SCALE_TO_BASE_2, shrink = exp2_approx(most[half] * SCALE_TO_BASE_2 - by);
        most[half] = next;
        sums[half] *= shrink;
        #pragma unroll
        for (unsigned int n = 0; n < VALUE_CHUNKS; n++) {
            all[n][2 * half] *= shrink;
            all[n][2 * half + 1] *= shrink;
        }
        #pragma unroll
        for (unsigned int n = 0; n < STEP / 8; n++) {
            #pragma unroll
            for (unsigned int i = 2 * half; i < 2 * half + 2; i++) {
                scores[n][i] = exp2_approx(scores[n][i] * SCALE_TO_BASE_2 - by);
                sums[half] += scores[n][i];
            }
        }
    }
}

// A sink's exponential joins the sum; scores are to be multiplied by the scale.
FUNCTION void leave(Block own, float (*all)[4], const float* most, const float* sums, const T_X* sinks, T_X* out, float* lse) {
    #pragma unroll
    for (unsigned int half = 0; half < 2; half++) {
        float sum = sums[half];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        unsigned int query = OWN(own, 2 * half);
        unsigned long long row = own.rows + query * G * R;
        if (query >= S) continue;
        float sink = SINK_OF(row), greatest = most[half] * SCALE, last = larger(greatest, sink), shrink = 1.0f;
        if (sink > NOTHING) {
            shrink = greatest > NOTHING ? expf(greatest - last) : 0.0f;
            sum = sum * shrink + expf(sink - last);
        }
        leave_row(out + row * C, all, VALUE_CHUNKS, half, sum > 0.0f ? shrink / sum : 0.0f);
        if (LANE % 4 == 0) lse[row] = last + logf(sum);
    }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, 1) attention_tiles(
    const T_X* q, const T_X* k, const T_X* v, const int* qpos, const int* kpos, const int* qseg, const int* kseg, const T_X* sinks,
    const int4* bounds, T_X* out, float* lse, unsigned long long adds, const unsigned long long* random, unsigned long long microbatch, unsigned long long index
) {
    extern __shared__ uint4 tiles[];
    DECLARE_KEY
    for (unsigned long long number = blockIdx.x; number < B * G * R * QUERY_BLOCKS; number += gridDim.x) {
        Block own = queries_of(number);
        const int4* of_keys = bounds + B * QUERY_STEPS + own.keys / T * KEY_STEPS;
        int4 of_own = own_bounds(bounds + own.queries / S * QUERY_STEPS, own.first / STEP, QUERY_STEPS);
        unsigned int query[KEY_CHUNKS / 2][4];
        float most[2] = {NOTHING, NOTHING}, sums[2] = {0.0f, 0.0f}, all[VALUE_CHUNKS][4];
        clear(all, VALUE_CHUNKS);
        unsigned int at = next_step(of_own, of_keys, 0, KEY_STEPS, 0), ahead = at, slot = 0;
        for (unsigned int i = 0; i < STAGES - 1; i++) {
            if (ahead < KEY_STEPS) bring_keys(tiles + i * KEY_STAGE, k, v, own.key_rows, ahead);
            cp_async_commit();
            ahead = next_step(of_own, of_keys, ahead + 1, KEY_STEPS, 0);
        }
        #pragma unroll
        for (unsigned int i = 0; i < KEY_CHUNKS / 2; i++) {
            left_of_rows(query[i], q + (own.rows + own.first * G * R) * D, G * R * D, S - own.first, 2 * i);
        }
        while (at < KEY_STEPS) {
            cp_async_wait(STAGES - 2);
            __syncthreads();
            // All have left the stage before the last one.
            if (ahead < KEY_STEPS) bring_keys(tiles + (slot + STAGES - 1) % STAGES * KEY_STAGE, k, v, own.key_rows, ahead);
            cp_async_commit();
            const uint4* stage = tiles + slot * KEY_STAGE;
            unsigned int keeps = kept_of_step(own, own.rows, at, 0, DROPOUT_KEY, microbatch * MICROBATCH);
            float scores[STEP / 8][4];
            clear(scores, STEP / 8);
            #pragma unroll
            for (unsigned int i = 0; i < KEY_CHUNKS / 2; i++) multiply_by_rows(scores, query[i], stage, 2 * i, KEY_CHUNKS);
            #pragma unroll
            for (unsigned int i = 0; i < STEP / 2; i++) scores[i / 4][i % 4] = bounded(scores[i / 4][i % 4]);
            int is_full = all_see(of_own, of_keys[at]) && (at + 1) * STEP <= T;
            if (!is_full) {
                unsigned int seen = seen_of_step(own, at, 0, qpos, kpos, qseg, kseg);
                #pragma unroll
                for (unsigned int i = 0; i < STEP / 2; i++) scores[i / 4][i % 4] = IS_SET(seen, i) ? scores[i / 4][i % 4] : NOTHING;
            }
            weigh(scores, most, sums, all);
            #pragma unroll
            for (unsigned int i = 0; i < STEP / 2; i++) scores[i / 4][i % 4] *= FACTOR(keeps, i);
            #pragma unroll
            for (unsigned int i = 0; i < STEP / 16; i++) {
                unsigned int weights[4];
                left_of_numbers(weights, scores, i);
                multiply_by_columns(all, weights, stage + STEP * KEY_CHUNKS, 16 * i, VALUE_CHUNKS);
            }
            slot = (slot + 1) % STAGES;
            at = next_step(of_own, of_keys, at + 1, KEY_STEPS, 0);
            ahead = next_step(of_own, of_keys, ahead + 1, KEY_STEPS, 0);
        }
        leave(own, all, most, sums, sinks, out, lse);
        __syncthreads();
    }
}
