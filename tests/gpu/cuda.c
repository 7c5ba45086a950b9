/* A CUDA without a GPU: the driver, NVRTC and cuBLASLt as far as Meshwright calls them, on this processor.
 *
 * Streams do nothing before somebody waits for them, the latest that CUDA allows: what is not ordered comes out wrong. Kernels
 * are compiled by `cc` behind the shim of the kernels' tests. Products are computed as the descriptors say, one by one.
 * With STAND_IN_FAULTS kernels and copies on the device forget their last element, products are off in one, lanes do not wait for
 * events, and every event loses memory. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef int Status;
typedef uint64_t Address;

static int faulty(void) { return getenv("STAND_IN_FAULTS") != 0; }

static const size_t TOTAL = (size_t)8 << 30;
static size_t taken;

/* ---- Streams ---- */

typedef struct Stream Stream;
typedef struct { Stream *stream; uint64_t recorded, done; double time; } Event;
typedef void (*Kernel)(uint64_t *arguments, unsigned blocks, unsigned threads);
typedef struct { Kernel run; unsigned parameters; } Function;
typedef struct { int type, batch; uint64_t rows, columns; int64_t leading, stride; } Layout;
typedef struct { int compute, transposed[2]; } Operation;
typedef struct { Operation operation; Layout a, b, d; float alpha, beta; const void *at, *bt; float *dt; } Product;

typedef struct Work {
    enum { COPY, SET, LAUNCH, PRODUCT, RECORD, WAIT } kind;
    void *to;
    const void *from;
    uint64_t bytes, mark, arguments[8];
    int value;
    Function *function;
    unsigned blocks, threads;
    Event *event;
    Stream *of;
    Product product;
    struct Work *next;
} Work;

struct Stream { Work *first, *last; Stream *other; };
static Stream *streams;

static Work *give(Stream *stream, Work work) {
    Work *own = malloc(sizeof work);
    *own = work;
    own->next = 0;
    if (stream->last) stream->last->next = own; else stream->first = own;
    return stream->last = own;
}

static void multiply(const Product *product);

static void step(Stream *stream) {
    Work *work = stream->first;
    if (!work) return;
    if (work->kind == WAIT && work->event->done < work->mark && !faulty()) return step(work->of);
    stream->first = work->next;
    if (!stream->first) stream->last = 0;
    switch (work->kind) {
        case COPY: memcpy(work->to, work->from, work->bytes); break;
        case SET: memset(work->to, work->value, work->bytes); break;
        case LAUNCH: work->function->run(work->arguments, work->blocks, work->threads); break;
        case PRODUCT: multiply(&work->product); break;
        case RECORD: {
            struct timespec now;
            clock_gettime(CLOCK_MONOTONIC, &now);
            work->event->time = now.tv_sec * 1e3 + now.tv_nsec / 1e6;
            work->event->done = work->mark;
        }
        case WAIT: break;
    }
    free(work);
}

static void finish(Stream *stream) { while (stream->first) step(stream); }
static Status finish_all(void) {
    for (Stream *stream = streams; stream; stream = stream->other) finish(stream);
    return 0;
}

Status cuStreamCreate(Stream **stream, unsigned flags) {
    *stream = calloc(1, sizeof **stream);
    (*stream)->other = streams;
    streams = *stream;
    return 0;
}
Status cuStreamDestroy_v2(Stream *stream) {
    finish(stream);
    for (Stream **at = &streams; *at; at = &(*at)->other) if (*at == stream) { *at = stream->other; break; }
    free(stream);
    return 0;
}
Status cuStreamSynchronize(Stream *stream) { finish(stream); return 0; }
Status cuStreamWaitEvent(Stream *stream, Event *event, unsigned flags) {
    give(stream, (Work){.kind = WAIT, .event = event, .mark = event->recorded, .of = event->stream});
    return 0;
}
Status cuEventCreate(Event **event, unsigned flags) {
    *event = calloc(1, sizeof **event);
    taken += faulty();
    return 0;
}
Status cuEventSynchronize(Event *event) { while (event->done < event->recorded) step(event->stream); return 0; }
Status cuEventDestroy_v2(Event *event) { finish_all(); free(event); return 0; }
Status cuEventRecord(Event *event, Stream *stream) {
    event->stream = stream;
    give(stream, (Work){.kind = RECORD, .event = event, .mark = ++event->recorded});
    return 0;
}
Status cuEventElapsedTime_v2(float *milliseconds, Event *from, Event *to) {
    *milliseconds = to->time - from->time + 1e-3;
    return 0;
}

/* ---- Device and memory ---- */

static int context;
static __thread void *current;

Status cuInit(unsigned flags) { return 0; }
Status cuGetErrorString(Status status, const char **text) { *text = "a stand-in's error"; return 0; }
Status cuDriverGetVersion(int *version) { *version = 13020; return 0; }
Status cuDeviceGetCount(int *count) { *count = 1; return 0; }
Status cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
Status cuDeviceGetName(char *name, int size, int device) { snprintf(name, size, "no GPU, a stand-in"); return 0; }
Status cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = TOTAL; return 0; }
Status cuDeviceGetAttribute(int *value, int attribute, int device) {
    switch (attribute) {
        case 13: *value = 1000000; break;         /* the clock, kHz */
        case 16: *value = 2; break;               /* multiprocessors */
        case 36: *value = 1000000; break;         /* the memory's clock, kHz */
        case 37: *value = 64; break;              /* its bus, bits */
        case 75: *value = 9; break;               /* compute capability 9.0 */
        default: *value = 0;
    }
    return 0;
}
Status cuDevicePrimaryCtxRetain(void **made, int device) { *made = &context; return 0; }
Status cuDevicePrimaryCtxRelease_v2(int device) { return 0; }
Status cuCtxGetCurrent(void **made) { *made = current; return 0; }
Status cuCtxSetCurrent(void *made) { current = made; return 0; }
Status cuCtxSynchronize(void) { return finish_all(); }

Status cuMemGetInfo_v2(size_t *free, size_t *total) {
    if (!current) return 201;
    *free = TOTAL - taken;
    *total = TOTAL;
    return 0;
}
/* The size stands before the memory; what is fresh is no number. */
Status cuMemAlloc_v2(Address *at, size_t bytes) {
    if (!current) return 201;
    char *start = aligned_alloc(256, (bytes + 511) / 256 * 256);
    *(size_t *)start = bytes;
    memset(start + 256, 0xff, bytes);
    taken += bytes;
    *at = (Address)(start + 256);
    return 0;
}
Status cuMemFree_v2(Address at) {
    finish_all();
    taken -= *(size_t *)(at - 256);
    free((void *)(at - 256));
    return 0;
}
Status cuMemHostAlloc(void **at, size_t bytes, unsigned flags) {
    *at = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return 0;
}
Status cuMemFreeHost(void *at) { free(at); return 0; }

static Status copy(void *to, const void *from, size_t bytes, Stream *stream) {
    if (!current) return 201;
    give(stream, (Work){.kind = COPY, .to = to, .from = from, .bytes = bytes});
    return 0;
}
Status cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, Stream *s) {
    return copy((void *)to, (void *)from, bytes - faulty(), s);
}
Status cuMemcpyHtoDAsync_v2(Address to, const void *from, size_t bytes, Stream *s) { return copy((void *)to, from, bytes, s); }
Status cuMemcpyDtoHAsync_v2(void *to, Address from, size_t bytes, Stream *s) { return copy(to, (void *)from, bytes, s); }
Status cuMemsetD8Async(Address to, unsigned char value, size_t bytes, Stream *stream) {
    give(stream, (Work){.kind = SET, .to = (void *)to, .value = value, .bytes = bytes});
    return 0;
}

/* ---- NVRTC and kernels ---- */

typedef struct { char *source, path[256]; unsigned parameters; } Text;
#define FOLDER (getenv("STAND_IN_FOLDER") ? getenv("STAND_IN_FOLDER") : "/tmp")

Status nvrtcVersion(int *major, int *minor) { *major = 13, *minor = 2; return 0; }
Status nvrtcCreateProgram(Text **text, const char *source, const char *name, int n, void *h, void *i) {
    *text = calloc(1, sizeof **text);
    (*text)->source = strdup(source);
    return 0;
}
Status nvrtcDestroyProgram(Text **text) { free((*text)->source); free(*text); return 0; }
Status nvrtcGetProgramLogSize(Text *text, size_t *size) { *size = 1; return 0; }
Status nvrtcGetProgramLog(Text *text, char *log) { *log = 0; return 0; }

/* The binary is the name of a shared library. It has how many parameters its kernels have, all of 8 bytes. */
Status nvrtcCompileProgram(Text *text, int count, const char **options) {
    int found = 0;
    for (int i = 0; i < count; i++) found |= !strcmp(options[i], "--gpu-architecture=sm_90");
    unsigned parameters = 1;
    for (char *at = text->source; (at = strstr(at, "extern \"C\" __global__ void ")); parameters = 1) {
        memset(at, ' ', strlen("extern \"C\" "));
        for (at = strchr(at, '('); *at != ')'; at++) parameters += *at == ',';
        text->parameters = parameters;
    }
    if (!found || !text->parameters) return 6;
    char name[300], command[1200];
    uint64_t hash = 0;
    for (char *at = text->source; *at; at++) hash = (hash ^ *at) * 0x100000001b3;
    snprintf(text->path, sizeof text->path, "%s/kernel%lx.so", FOLDER, hash);
    if (!access(text->path, R_OK)) return 0;
    snprintf(name, sizeof name, "%s.c", text->path);
    FILE *file = fopen(name, "w");
    if (!file) return 6;
    fprintf(file, "#include \"%s\"\n%s\n#include <stdint.h>\n", SHIM, text->source);
    fprintf(file, "unsigned parameters = %u;\n", text->parameters);
    for (const char **kernel = (const char *[]){"elementwise", "elementwise_add", 0}; *kernel; kernel++) {
        fprintf(file, "void run_%s(uint64_t *a, unsigned blocks, unsigned threads) {\n", *kernel);
        fprintf(file, " gridDim.x = blocks, blockDim.x = threads;\n");
        fprintf(file, " for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++)\n");
        fprintf(file, "  for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++) %s(", *kernel);
        for (unsigned i = 0; i + 1 < text->parameters; i++) fprintf(file, "(void *)a[%u], ", i);
        fprintf(file, "a[%u]);\n}\n", text->parameters - 1);
    }
    fclose(file);
    snprintf(command, sizeof command, "cc -std=gnu11 -O1 -ffp-contract=off -shared -fPIC -o %s %s -lm", text->path, name);
    return system(command) ? 6 : 0;
}
Status nvrtcGetCUBINSize(Text *text, size_t *size) { *size = strlen(text->path) + 1; return 0; }
Status nvrtcGetCUBIN(Text *text, char *binary) { strcpy(binary, text->path); return 0; }

Status cuModuleLoadData(void **module, const void *binary) {
    *module = dlopen(binary, RTLD_NOW | RTLD_LOCAL);
    return *module ? 0 : 200;
}
Status cuModuleUnload(void *module) { finish_all(); dlclose(module); return 0; }
Status cuModuleGetFunction(Function **function, void *module, const char *name) {
    char symbol[64];
    snprintf(symbol, sizeof symbol, "run_%s", name);
    *function = malloc(sizeof **function);
    (*function)->run = (Kernel)dlsym(module, symbol);
    (*function)->parameters = *(unsigned *)dlsym(module, "parameters");
    return (*function)->run ? 0 : 500;
}
Status cuLaunchKernel(Function *function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned ty, unsigned tz,
                      unsigned shared, Stream *stream, void **arguments, void **extra) {
    if (!current || x * y * z == 0 || threads == 0 || function->parameters > 8) return 1;
    Work *work = give(stream, (Work){.kind = LAUNCH, .function = function, .blocks = x, .threads = threads});
    for (unsigned i = 0; i < function->parameters; i++) work->arguments[i] = *(uint64_t *)arguments[i];
    work->arguments[function->parameters - 1] -= faulty();
    return 0;
}

/* ---- cuBLASLt ---- */

enum { INVALID = 7, UNSUPPORTED = 15, FLOAT = 0, BF16 = 14, TF32 = 77 };
typedef struct { size_t workspace; uint32_t alignment[4]; } Preference;
typedef struct { uint64_t data[8]; } Algorithm;
typedef struct { Algorithm algorithm; size_t workspace; Status state; float waves; int reserved[4]; } Choice;

size_t cublasLtGetVersion(void) { return 130100; }
Status cublasLtCreate(void **handle) { *handle = malloc(1); return 0; }
Status cublasLtDestroy(void *handle) { free(handle); return 0; }

Status cublasLtMatmulDescCreate(Operation **operation, int compute, int scale) {
    *operation = calloc(1, sizeof **operation);
    (*operation)->compute = compute;
    return scale == FLOAT ? 0 : INVALID;
}
Status cublasLtMatmulDescSetAttribute(Operation *operation, int attribute, const void *value, size_t size) {
    if (attribute < 3 || attribute > 4 || size != 4) return INVALID;
    operation->transposed[attribute - 3] = *(int32_t *)value;
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
    else if (attribute >= 5 && attribute <= 8 && size == 4) preference->alignment[attribute - 5] = *(uint32_t *)value;
    else return INVALID;
    return 0;
}
Status cublasLtMatmulPreferenceDestroy(Preference *preference) { free(preference); return 0; }

static uint64_t rows(const Layout *layout, int transposed) { return transposed ? layout->columns : layout->rows; }
static uint64_t columns(const Layout *layout, int transposed) { return transposed ? layout->rows : layout->columns; }

/* The algorithm is the alignment that it was promised. */
Status cublasLtMatmulAlgoGetHeuristic(void *handle, Operation *operation, Layout *a, Layout *b, Layout *c, Layout *d,
                                      Preference *preference, int asked, Choice *choice, int *found) {
    int ta = operation->transposed[0], tb = operation->transposed[1];
    int fits = rows(a, ta) == d->rows && columns(b, tb) == d->columns && columns(a, ta) == rows(b, tb);
    const Layout *all[] = {a, b, c, d};
    for (int i = 0; i < 4; i++) fits = fits && all[i]->leading >= (int64_t)all[i]->rows && all[i]->batch == d->batch;
    *found = fits && asked > 0 && a->type == b->type && d->type == FLOAT;
    *choice = (Choice){.workspace = preference->workspace};
    for (int i = 0; i < 4; i++) choice->algorithm.data[i] = preference->alignment[i];
    return fits ? 0 : UNSUPPORTED;
}

Status cublasLtMatmul(void *handle, Operation *operation, const float *alpha, const void *a, Layout *al, const void *b,
                      Layout *bl, const float *beta, const void *c, Layout *cl, float *d, Layout *dl,
                      const Algorithm *algorithm, void *workspace, size_t bytes, Stream *stream) {
    const void *all[] = {a, b, c, d};
    for (int i = 0; i < 4; i++) if (!algorithm->data[i] || (Address)all[i] % algorithm->data[i]) return INVALID;
    if (!current || c != d || !workspace || (Address)workspace % 256) return INVALID;
    Product product = {*operation, *al, *bl, *dl, *alpha, *beta, a, b, d};
    give(stream, (Work){.kind = PRODUCT, .product = product});
    return 0;
}

static float number(const Layout *layout, const void *at, int transposed, int batch, uint64_t row, uint64_t column, int compute) {
    uint64_t r = transposed ? column : row, c = transposed ? row : column;
    uint64_t i = batch * layout->stride + c * layout->leading + r;
    uint32_t bits = layout->type == BF16 ? (uint32_t)((uint16_t *)at)[i] << 16 : ((uint32_t *)at)[i];
    if (compute == TF32) bits &= 0xffffe000;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

static void multiply(const Product *p) {
    const int ta = p->operation.transposed[0], tb = p->operation.transposed[1], compute = p->operation.compute;
    uint64_t m = p->d.rows, n = p->d.columns, k = columns(&p->a, ta);
    float *column = malloc(k * sizeof *column);
    for (int batch = 0; batch < p->d.batch; batch++)
        for (uint64_t j = 0; j < n; j++) {
            for (uint64_t l = 0; l < k; l++) column[l] = number(&p->b, p->bt, tb, batch, l, j, compute);
            for (uint64_t i = 0; i < m; i++) {
                float sum = 0;
                for (uint64_t l = 0; l < k; l++) sum += number(&p->a, p->at, ta, batch, i, l, compute) * column[l];
                float *out = p->dt + batch * p->d.stride + j * p->d.leading + i;
                *out = p->alpha * sum + (p->beta == 0 ? 0 : p->beta * *out);
                if (faulty() && i + 1 == m && j + 1 == n) *out += 1 + (sum < 0 ? -sum : sum);
            }
        }
    free(column);
}
