// The highest of each row. Without a bias `bias` is not read.
// A column and what it is compared by: a higher number is first, of equal ones the lower column. `key` orders all numbers.
typedef struct { int key; unsigned int column; float number; } Candidate;

FUNCTION int is_before(Candidate a, Candidate b) { return a.key > b.key || (a.key == b.key && a.column < b.column); }

FUNCTION Candidate candidate(float number, unsigned int column) {
    Candidate made;
    unsigned int bits = __float_as_uint(number);
    made.key = (int)(bits & 0x80000000u ? bits ^ 0x7fffffffu : bits);
    made.column = column;
    made.number = number;
    return made;
}

FUNCTION Candidate none_yet(void) {
    Candidate made;
    made.key = 0x7fffffff;
    made.column = 0;
    made.number = 0.0f;
    return made;
}

FUNCTION Candidate column_of(const T_X* row, const T_BIAS* bias, unsigned int column) {
    float number = LOAD_X(row[column]);
#ifdef BIAS
    number += LOAD_BIAS(bias[column]);
#else
    number += 0.0f;
#endif
    return candidate(number, column);
}

#ifdef GROUPS
// The score of a group of columns, the sum of its highest.
FUNCTION Candidate score(const T_X* row, const T_BIAS* bias, unsigned int group) {
    float sum = 0.0f;
    Candidate last = none_yet();
    for (unsigned int k = 0; k < BY; k++) {
        Candidate best = last;
        int found = 0;
        for (unsigned int column = group * GROUP_SIZE; column < (group + 1) * GROUP_SIZE; column++) {
            Candidate one = column_of(row, bias, column);
            if ((k == 0 || is_before(last, one)) && (!found || is_before(one, best))) best = one, found = 1;
        }
        sum += found ? best.number : 0.0f;
        last = best;
    }
    return candidate(sum, group);
}

FUNCTION Candidate last_group(const T_X* row, const T_BIAS* bias) {
    Candidate last = none_yet();
    for (unsigned int k = 0; k < OF_GROUPS; k++) {
        Candidate best = last;
        int found = 0;
        for (unsigned int group = 0; group < GROUPS; group++) {
            Candidate one = score(row, bias, group);
            if ((k == 0 || is_before(last, one)) && (!found || is_before(one, best))) best = one, found = 1;
        }
        last = best;
    }
    return last;
}
#endif

// A thread for each row.
extern "C" __global__ void __launch_bounds__(256) top_k(
    const T_X* x, const T_BIAS* bias, T_OUT* values, int* index, unsigned long long adds
) {
    for (unsigned long long r = FIRST_THREAD; r < ROWS; r += THREADS) {
        const T_X* row = x + r * COLUMNS;
#ifdef GROUPS
        Candidate open = last_group(row, bias);
#endif
        Candidate last = none_yet();
        for (unsigned int k = 0; k < K; k++) {
            Candidate best = none_yet();
            int found = 0;
#ifdef GROUPS
            for (unsigned int group = 0; group < GROUPS; group++) {
                if (is_before(open, score(row, bias, group))) continue;
                for (unsigned int column = group * GROUP_SIZE; column < (group + 1) * GROUP_SIZE; column++) {
#else
            {
                for (unsigned int column = 0; column < COLUMNS; column++) {
#endif
                    Candidate one = column_of(row, bias, column);
                    if ((k == 0 || is_before(last, one)) && (!found || is_before(one, best))) best = one, found = 1;
                }
            }
            last = best;
            values[r * K + k] = STORE_OUT(LOAD_X(row[best.column]));
            index[r * K + k] = (int)best.column;
        }
    }
}
