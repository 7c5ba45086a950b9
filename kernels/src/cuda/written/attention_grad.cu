// The gradients, from the saved logarithm of the sum. A query that sees nothing has a sum that makes all of its weights zero.

// Where a query sees one value alone, the gradient by its weight is `delta` to the bit, and cancels.
extern "C" __global__ void __launch_bounds__(256) attention_delta(const T_X* out, const T_X* dout, float* delta, unsigned long long adds) {
    for (unsigned long long row = FIRST_THREAD; row < ROWS; row += THREADS) delta[row] = dot(dout + row * C, out + row * C, C);
}

// Of a query and a key that it sees the weight, and the gradients by the score and by the value's factor.
typedef struct { float score, weight; } Pair;

FUNCTION Pair pair(
    const T_X* query, const T_X* key, const T_X* dout, const T_X* value, float sum, float delta, float factor
) {
    Pair made;
    float product = bounded(dot(query, key, D)), weight = expf(SCALE * product - (sum > NOTHING ? sum : -NOTHING));
    made.score = weight * (dot(dout, value, C) * factor - delta) * slope(product);
    made.weight = weight * factor;
    return made;
}

// A warp for each row goes through the keys.
extern "C" __global__ void __launch_bounds__(256) attention_dq(
    const T_X* q, const T_X* k, const T_X* v, const T_X* dout, const float* lse, const float* delta, const int* qpos, const int* kpos,
    const int* qseg, const int* kseg, T_X* dq, unsigned long long adds, const unsigned long long* random, unsigned long long microbatch,
    unsigned long long index
) {
    DECLARE_KEY
    unsigned int lane = threadIdx.x % 32;
    for (unsigned long long row = FIRST_THREAD / 32; row < ROWS; row += THREADS / 32) {
        unsigned long long place = row / (G * R), keys = place / S * T, head = row / R % G;
        float all[(D + 31) / 32] = {0.0f};
        for (unsigned long long first = 0; first < T; first += 32) {
            unsigned long long own = first + lane, key = keys + own;
            int sees = own < T && SEES(place, key);
            if (!__any_sync(0xffffffffu, sees)) continue;
            float gradient = 0.0f;
            if (sees) {
                float factor = kept(DROPOUT_KEY, microbatch * MICROBATCH, row, own);
                const T_X* value = v + (key * G + head) * C;
                gradient = pair(q + row * D, k + (key * G + head) * D, dout + row * C, value, lse[row], delta[row], factor).score;
            }
            for (unsigned int other = 0; other < 32 && first + other < T; other++) {
                float by = __shfl_sync(0xffffffffu, gradient, other);
                const T_X* from = k + ((keys + first + other) * G + head) * D;
                #pragma unroll
                for (unsigned int i = 0; i < (D + 31) / 32; i++) {
                    if (i * 32 + lane < D) all[i] += by * LOAD_X(from[i * 32 + lane]);
                }
            }
        }
        #pragma unroll
        for (unsigned int i = 0; i < (D + 31) / 32; i++) {
            if (i * 32 + lane < D) dq[row * D + i * 32 + lane] = STORE_X(SCALE * all[i]);
        }
    }
}

// A warp for each key row goes through the queries of its heads.
extern "C" __global__ void __launch_bounds__(256) attention_dkv(
    const T_X* q, const T_X* k, const T_X* v, const T_X* dout, const float* lse, const float* delta, const int* qpos, const int* kpos,
    const int* qseg, const int* kseg, T_X* dk, T_X* dv, unsigned long long adds, const unsigned long long* random,
    unsigned long long microbatch, unsigned long long index
) {
    DECLARE_KEY
    unsigned int lane = threadIdx.x % 32;
    for (unsigned long long own = FIRST_THREAD / 32; own < KEY_ROWS; own += THREADS / 32) {
        unsigned long long key = own / G, head = own % G, batch = key / T;
        float keys[(D + 31) / 32] = {0.0f}, values[(C + 31) / 32] = {0.0f};
        for (unsigned long long first = 0; first < R * S; first += 32) {
            unsigned long long number = first + lane, place = batch * S + number % S, row = (place * G + head) * R + number / S;
            int sees = number < R * S && SEES(place, key);
            if (!__any_sync(0xffffffffu, sees)) continue;
            Pair one = {0.0f, 0.0f};
            if (sees) {
                float factor = kept(DROPOUT_KEY, microbatch * MICROBATCH, row, key % T);
                one = pair(q + row * D, k + own * D, dout + row * C, v + own * C, lse[row], delta[row], factor);
            }
            for (unsigned int other = 0; other < 32 && first + other < R * S; other++) {
                float score = __shfl_sync(0xffffffffu, one.score, other), weight = __shfl_sync(0xffffffffu, one.weight, other);
                unsigned long long from = ((batch * S + (first + other) % S) * G + head) * R + (first + other) / S;
                #pragma unroll
                for (unsigned int i = 0; i < (D + 31) / 32; i++) {
                    if (i * 32 + lane < D) keys[i] += score * LOAD_X(q[from * D + i * 32 + lane]);
                }
                #pragma unroll
                for (unsigned int i = 0; i < (C + 31) / 32; i++) {
                    if (i * 32 + lane < C) values[i] += weight * LOAD_X(dout[from * C + i * 32 + lane]);
                }
            }
        }
        #pragma unroll
        for (unsigned int i = 0; i < (D + 31) / 32; i++) {
            if (i * 32 + lane < D) dk[own * D + i * 32 + lane] = STORE_X(SCALE * keys[i]);
        }
        #pragma unroll
        for (unsigned int i = 0; i < (C + 31) / 32; i++) {
            if (i * 32 + lane < C) dv[own * C + i * 32 + lane] = STORE_X(values[i]);
        }
    }
}
