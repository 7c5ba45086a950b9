// A warp for each row goes through the keys, 32 at a time, with the softmax of Dao, Fu, Ermon, Rudra and Ré, "FlashAttention" (2022).
extern "C" __global__ void __launch_bounds__(256) attention(
    const T_X* q, const T_X* k, const T_X* v, const int* qpos, const int* kpos, const int* qseg, const int* kseg, const T_X* sinks, T_X* out,
    float* lse, unsigned long long adds, const unsigned long long* random, unsigned long long microbatch, unsigned long long index
) {
    DECLARE_KEY
    unsigned int lane = threadIdx.x % 32;
    for (unsigned long long row = FIRST_THREAD / 32; row < ROWS; row += THREADS / 32) {
        unsigned long long place = row / (G * R), keys = place / S * T, head = row / R % G;
        float most = NOTHING, sum = 0.0f, all[(C + 31) / 32] = {0.0f};
        for (unsigned long long first = 0; first < T; first += 32) {
            unsigned long long own = first + lane, key = keys + own;
            int sees = own < T && SEES(place, key);
            if (!__any_sync(0xffffffffu, sees)) continue;
            float score = sees ? SCALE * bounded(dot(q + row * D, k + (key * G + head) * D, D)) : NOTHING;
            float next = larger(most, warp_max(score));
            if (next == NOTHING) continue;
            float shrink = expf(most - next), weight = expf(score - next);
            sum = sum * shrink + warp_sum(weight);
            most = next;
            if (own < T) weight *= kept(DROPOUT_KEY, microbatch * MICROBATCH, row, own);
            #pragma unroll
            for (unsigned int i = 0; i < (C + 31) / 32; i++) all[i] *= shrink;
            for (unsigned int other = 0; other < 32 && first + other < T; other++) {
                float by = __shfl_sync(0xffffffffu, weight, other);
                const T_X* value = v + ((keys + first + other) * G + head) * C;
                #pragma unroll
                for (unsigned int i = 0; i < (C + 31) / 32; i++) {
                    if (i * 32 + lane < C) all[i] += by * LOAD_X(value[i * 32 + lane]);
                }
            }
        }
        float sink = SINK_OF(row), last = larger(most, sink), shrink = most > NOTHING ? expf(most - last) : 0.0f;
        sum = sink > NOTHING ? sum * shrink + expf(sink - last) : sum;
        float factor = sum > 0.0f ? (sink > NOTHING ? shrink : 1.0f) / sum : 0.0f;
        most = last;
        #pragma unroll
        for (unsigned int i = 0; i < (C + 31) / 32; i++) {
            if (i * 32 + lane < C) out[row * C + i * 32 + lane] = STORE_X(all[i] * factor);
        }
        if (lane == 0) lse[row] = most + logf(sum);
    }
}
