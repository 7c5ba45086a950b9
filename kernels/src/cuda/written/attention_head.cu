// What attention and its gradient share. A row is a query of a head, `[b, s, g, r]`; a key row is a key of a head, `[b, t, g]`.

#define ROWS (B * S * G * R)
#define KEY_ROWS (B * T * G)
#define NOTHING __uint_as_float(0xff800000u)

FUNCTION float dot(const T_X* a, const T_X* b, unsigned int n) {
    float sum = 0.0f;
    for (unsigned int i = 0; i < n; i++) sum += LOAD_X(a[i]) * LOAD_X(b[i]);
    return sum;
}

// A query sees the keys of its segment, up to its own position if attention is causal.
#define SEES(query, key) (qseg[query] == kseg[key] && (!CAUSAL || kpos[key] <= qpos[query]))

// The factor of a weight.
FUNCTION float kept(unsigned long long key, unsigned long long first, unsigned long long row, unsigned long long at) {
#ifdef DROPOUT
    return uniform(key, first + COUNTER(row * T) + at) >= P ? KEEP : 0.0f;
#else
    return 1.0f;
#endif
}

