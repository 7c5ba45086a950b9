// What attention and its gradient share. A row is a query of a head, `[b, s, g, r]`; a key row is a key of a head, `[b, t, g]`.

#define ROWS (B * S * G * R)
#define KEY_ROWS (B * T * G)
#define NOTHING __uint_as_float(0xff800000u)

FUNCTION float dot(const T_X* a, const T_X* b, unsigned int n) {
    float sum = 0.0f;
    for (unsigned int i = 0; i < n; i++) sum += LOAD_X(a[i]) * LOAD_X(b[i]);
    return sum;
}

// A query sees the keys of its segment, up to its own position if attention is causal, and within its window or its chunk.
#ifdef WINDOW
#define IS_NEAR(query, key) ((long long)(query) - (key) < WINDOW)
#elif defined(CHUNK)
#define CHUNK_OF(pos) ((pos) < 0 ? -1 - (-1 - (long long)(pos)) / CHUNK : (pos) / CHUNK)
#define IS_NEAR(query, key) (CHUNK_OF(query) <= CHUNK_OF(key))
#else
#define IS_NEAR(query, key) 1
#endif
#define SEES(query, key) (qseg[query] == kseg[key] && (!CAUSAL || kpos[key] <= qpos[query]) && IS_NEAR(qpos[query], kpos[key]))

// A further score of each query of a head, of no value. Without one, the argument is another tensor, which nothing reads.
#ifdef SINK
#define SINK_OF(row) LOAD_X(sinks[(row) % (G * R)])
#else
#define SINK_OF(row) NOTHING
#endif

// The product of a query and a key such that the score is within its bound, and the derivative of a product that is so.
FUNCTION float bounded(float product) {
#ifdef IS_BOUNDED
    return FROM_SHARE * tanhf(TO_SHARE * product);
#else
    return product;
#endif
}

FUNCTION float slope(float product) {
#ifdef IS_BOUNDED
    return 1.0f - TO_SHARE * product * (TO_SHARE * product);
#else
    return 1.0f;
#endif
}

// The factor of a weight.
FUNCTION float kept(unsigned long long key, unsigned long long first, unsigned long long row, unsigned long long at) {
#ifdef DROPOUT
    return uniform(key, first + COUNTER(row * T) + at) >= P ? KEEP : 0.0f;
#else
    return 1.0f;
#endif
}

