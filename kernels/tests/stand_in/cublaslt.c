#include "driver.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct { int type, batch; uint64_t rows, columns; int64_t leading, stride; } Layout;
typedef struct { int compute, transposed[2]; const float *scales[2]; uint32_t epilogue; const void *bias; } Operation;
typedef struct { Operation operation; Layout a, b, d; float alpha, beta; const void *at, *bt, *ct; void *dt; } Product;

/* Statuses of cuBLAS, and its numbers of types and arithmetic. */
enum { INVALID = 7, UNSUPPORTED = 15, FLOAT = 0, HALF = 2, BF16 = 14, E4M3 = 28, E5M2 = 29, TF32 = 77 };
/* Epilogues: none, and a number that is added to each row. */
enum { DEFAULT = 1, BIAS = 4 };
/* Parts of sums are added in the arithmetic's type, out of place. */
enum { OUT_OF_PLACE = 2 };
typedef struct { size_t workspace; uint32_t alignment[4], reduction; } Preference;
typedef struct { uint64_t data[8]; } Algorithm;
typedef struct { Algorithm algorithm; size_t workspace; Status state; float waves; int reserved[4]; } Choice;

size_t cublasLtGetVersion(void) { return 130100; }
Status cublasLtCreate(void **handle) { *handle = malloc(1); return 0; }
Status cublasLtDestroy(void *handle) { free(handle); return 0; }

Status cublasLtMatmulDescCreate(Operation **operation, int compute, int scale) {
    *operation = calloc(1, sizeof **operation);
    (*operation)->compute = compute;
    (*operation)->epilogue = DEFAULT;
    return scale == FLOAT ? 0 : INVALID;
}
Status cublasLtMatmulDescSetAttribute(Operation *operation, int attribute, const void *value, size_t size) {
    if (attribute >= 3 && attribute <= 4 && size == 4) operation->transposed[attribute - 3] = *(int32_t *)value;
    else if (attribute == 7 && size == 4 && (*(uint32_t *)value == DEFAULT || *(uint32_t *)value == BIAS))
        operation->epilogue = *(uint32_t *)value;
    else if (attribute == 8 && size == 8) operation->bias = *(const void **)value;
    else if (attribute >= 17 && attribute <= 18 && size == 8) operation->scales[attribute - 17] = *(const float **)value;
    else return INVALID;
    return 0;
}
Status cublasLtMatmulDescDestroy(Operation *operation) { free(operation); return 0; }

Status cublasLtMatrixLayoutCreate(Layout **layout, int type, uint64_t rows, uint64_t columns, int64_t leading) {
    *layout = calloc(1, sizeof **layout);
    **layout = (Layout){.type = type, .batch = 1, .rows = rows, .columns = columns, .leading = leading};
    return 0;
}
Status cublasLtMatrixLayoutSetAttribute(Layout *layout, int attribute, const void *value, size_t size) {
    if (attribute == 5 && size == 4) layout->batch = *(int32_t *)value;
    else if (attribute == 6 && size == 8) layout->stride = *(int64_t *)value;
    else return INVALID;
    return 0;
}
Status cublasLtMatrixLayoutDestroy(Layout *layout) { free(layout); return 0; }

Status cublasLtMatmulPreferenceCreate(Preference **preference) {
    *preference = calloc(1, sizeof **preference);
    return 0;
}
Status cublasLtMatmulPreferenceSetAttribute(Preference *preference, int attribute, const void *value, size_t size) {
    if (attribute == 1 && size == 8) preference->workspace = *(size_t *)value;
    else if (attribute == 3 && size == 4) preference->reduction = *(uint32_t *)value;
    else if (attribute >= 5 && attribute <= 8 && size == 4) preference->alignment[attribute - 5] = *(uint32_t *)value;
    else return INVALID;
    return 0;
}
Status cublasLtMatmulPreferenceDestroy(Preference *preference) { free(preference); return 0; }

static uint64_t rows(const Layout *layout, int transposed) { return transposed ? layout->columns : layout->rows; }
static uint64_t columns(const Layout *layout, int transposed) { return transposed ? layout->rows : layout->columns; }

static int has_eight_bits(const Layout *layout) { return layout->type == E4M3 || layout->type == E5M2; }

/* Operands of 8 bits: A transposed and B not, in addresses and sizes of 16 bytes, one of them E4M3 at least, and one matrix each. The library
 * itself takes a missing scale for 1. */
static int fits_eight_bits(const Operation *o, const Layout *a, const Layout *b, const Layout *d, const uint32_t *alignment) {
    int fits = capability() >= 89 && o->compute == 68 && o->transposed[0] && !o->transposed[1] && o->scales[0] && o->scales[1];
    const Layout *all[] = {a, b, d};
    for (int i = 0; i < 3; i++) fits = fits && all[i]->rows % 16 == 0 && all[i]->columns % 16 == 0 && all[i]->leading % 16 == 0;
    for (int i = 0; i < 4; i++) fits = fits && alignment[i] % 16 == 0;
    fits = fits && o->epilogue == DEFAULT && has_eight_bits(a) && has_eight_bits(b) && (a->type == E4M3 || b->type == E4M3) && d->batch == 1;
    return fits && (d->type == FLOAT || d->type == HALF || d->type == BF16);
}

/* An algorithm is the alignment that it was promised, and its number. There are three; the second one does not do what is asked. A narrow
 * result has the operands' type, and none of the reductions that round more than once. */
enum { ALGORITHMS = 3, NUMBER = 4 };
Status cublasLtMatmulAlgoGetHeuristic(void *handle, Operation *operation, Layout *a, Layout *b, Layout *c, Layout *d,
                                      Preference *preference, int asked, Choice *choice, int *found) {
    int ta = operation->transposed[0], tb = operation->transposed[1];
    int fits = rows(a, ta) == d->rows && columns(b, tb) == d->columns && columns(a, ta) == rows(b, tb);
    const Layout *all[] = {a, b, c, d};
    for (int i = 0; i < 4; i++) fits = fits && all[i]->leading >= (int64_t)all[i]->rows && all[i]->batch == d->batch;
    fits = fits && c->type == d->type;
    if (has_eight_bits(a) || has_eight_bits(b)) fits = fits && fits_eight_bits(operation, a, b, d, preference->alignment);
    else fits = fits && a->type == b->type && (d->type == FLOAT || d->type == a->type);
    fits = fits && (operation->epilogue == DEFAULT || (operation->bias && d->batch == 1));
    fits = fits && asked > 0 && preference->reduction == OUT_OF_PLACE;
    *found = !fits ? 0 : asked < ALGORITHMS ? asked : ALGORITHMS;
    for (int n = 0; n < *found; n++) {
        choice[n] = (Choice){.workspace = preference->workspace, .state = n == 1 ? UNSUPPORTED : 0};
        for (int i = 0; i < 4; i++) choice[n].algorithm.data[i] = preference->alignment[i];
        choice[n].algorithm.data[NUMBER] = n;
    }
    return fits ? 0 : UNSUPPORTED;
}

/* Of what an algorithm is, its number alone is known: no sum has parts. */
enum { ID = 0, PARTS = 2 };
Status cublasLtMatmulAlgoConfigGetAttribute(const Algorithm *algorithm, int attribute, void *value, size_t size, size_t *written) {
    if (size != 4) return INVALID;
    *(int32_t *)value = attribute == ID ? (int32_t)algorithm->data[NUMBER] : attribute == PARTS;
    *written = size;
    return OK;
}

static uint64_t place(const Layout *layout, int transposed, int batch, uint64_t row, uint64_t column) {
    uint64_t r = transposed ? column : row, c = transposed ? row : column;
    return batch * layout->stride + c * layout->leading + r;
}

/* Sign, exponent, mantissa; E4M3 has no infinity. */
static float eight_bits(int type, uint8_t bits) {
    int places = type == E4M3 ? 3 : 2, bias = type == E4M3 ? 7 : 15, exponent = (bits & 0x7f) >> places;
    float fraction = (bits & ((1 << places) - 1)) / (float)(1 << places), sign = bits & 0x80 ? -1 : 1;
    if (type == E4M3 ? (bits & 0x7f) == 0x7f : exponent == 31) return fraction ? NAN : sign * INFINITY;
    return sign * ldexpf(exponent ? 1 + fraction : fraction, (exponent ? exponent : 1) - bias);
}

static float load(int type, const void *at, uint64_t i) {
    if (type == FLOAT) return ((const float *)at)[i];
    if (type == HALF) return ((const _Float16 *)at)[i];
    if (type == E4M3 || type == E5M2) return eight_bits(type, ((const uint8_t *)at)[i]);
    uint32_t bits = (uint32_t)((const uint16_t *)at)[i] << 16;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

/* To nearest, ties to even; a NaN stays one. */
static void store(int type, void *at, uint64_t i, float x) {
    if (type == FLOAT) ((float *)at)[i] = x;
    if (type == HALF) ((_Float16 *)at)[i] = (_Float16)x;
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (type == BF16) ((uint16_t *)at)[i] = x != x ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

static uint64_t bytes_of(int type) { return type == FLOAT ? 4 : type == HALF || type == BF16 ? 2 : 1; }

static float operand(int compute, float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (compute == TF32) bits &= 0xffffe000;
    memcpy(&x, &bits, 4);
    return x;
}

static Status multiply(void *data) {
    const Product *p = data;
    const int ta = p->operation.transposed[0], tb = p->operation.transposed[1], compute = p->operation.compute;
    uint64_t m = p->d.rows, n = p->d.columns, k = columns(&p->a, ta);
    const float scale = has_eight_bits(&p->a) ? *p->operation.scales[0] * *p->operation.scales[1] : 1;
    float *column = malloc(k * sizeof *column);
    for (int batch = 0; batch < p->d.batch; batch++)
        for (uint64_t j = 0; j < n; j++) {
            for (uint64_t l = 0; l < k; l++) column[l] = operand(compute, load(p->b.type, p->bt, place(&p->b, tb, batch, l, j)));
            for (uint64_t i = 0; i < m; i++) {
                float sum = 0;
                for (uint64_t l = 0; l < k; l++)
                    sum += operand(compute, load(p->a.type, p->at, place(&p->a, ta, batch, i, l))) * column[l];
                uint64_t at = place(&p->d, 0, batch, i, j);
                float out = p->alpha * scale * sum + (p->beta == 0 ? 0 : p->beta * load(p->d.type, p->ct, at));
                if (p->operation.epilogue == BIAS) out += load(p->d.type, p->operation.bias, i);
                if (faulty() && i + 1 == m && j + 1 == n) out += 1 + (sum < 0 ? -sum : sum);
                store(p->d.type, p->dt, at, out);
            }
        }
    free(column);
    return OK;
}

Status cublasLtMatmul(void *handle, Operation *operation, const float *alpha, const void *a, Layout *al, const void *b,
                      Layout *bl, const float *beta, const void *c, Layout *cl, void *d, Layout *dl,
                      const Algorithm *algorithm, void *workspace, size_t bytes, Stream *stream) {
    ONE_AT_A_TIME;
    const void *all[] = {a, b, c, d};
    for (int i = 0; i < 4; i++) if (!algorithm->data[i] || (Address)all[i] % algorithm->data[i]) return INVALID;
    /* C is D, or overlaps no part of it. */
    uint64_t end = ((uint64_t)(dl->batch - 1) * dl->stride + (dl->columns - 1) * dl->leading + dl->rows) * bytes_of(dl->type);
    int apart = (Address)c + end <= (Address)d || (Address)d + end <= (Address)c;
    if (!has_context() || algorithm->data[NUMBER] == 1 || (c != d && !apart) || !workspace || (Address)workspace % 256) return INVALID;
    for (int i = 0; i < 2; i++) if (has_eight_bits(al) && (!operation->scales[i] || (Address)operation->scales[i] % 4)) return INVALID;
    if (operation->epilogue == BIAS && (!operation->bias || (Address)operation->bias % bytes_of(dl->type))) return INVALID;
    Product product = {*operation, *al, *bl, *dl, *alpha, *beta, a, b, c, d};
    give(stream, multiply, &product, sizeof product);
    return failed();
}
