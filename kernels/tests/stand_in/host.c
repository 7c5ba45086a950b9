/* Runs launches on the stand-in: `host JOB RESULT`. `mod.rs` writes the job, in numbers of 8 bytes and texts or bytes behind their
 * length. The result is what the buffers hold at the end. */
#include "driver.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Program Program;
typedef struct Module Module;
typedef struct Function Function;
Status cuCtxSetCurrent(void *context);
Status cuGetErrorString(Status status, const char **text);
Status cuStreamCreate(Stream **stream, unsigned flags);
Status cuStreamSynchronize(Stream *stream);
Status cuMemAlloc_v2(Address *at, size_t bytes);
Status cuMemFree_v2(Address at);
Status cuMemcpyHtoDAsync_v2(Address to, const void *from, size_t bytes, Stream *stream);
Status cuMemcpyDtoHAsync_v2(void *to, Address from, size_t bytes, Stream *stream);
Status nvrtcCreateProgram(Program **program, const char *source, const char *name, int headers, void *texts, void *names);
Status nvrtcCompileProgram(Program *program, int count, const char **options);
Status nvrtcGetProgramLogSize(Program *program, size_t *size);
Status nvrtcGetProgramLog(Program *program, char *log);
Status nvrtcGetCUBINSize(Program *program, size_t *size);
Status nvrtcGetCUBIN(Program *program, char *binary);
Status cuModuleLoadData(Module **module, const void *binary);
Status cuModuleGetFunction(Function **function, Module *module, const char *name);
Status cuFuncSetAttribute(Function *function, int attribute, int value);
Status cuLaunchKernel(Function *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned dynamic,
                      Stream *stream, void **arguments, void **extra);

enum { MOST = 1024, MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 };
static FILE *job;

static void need(Status status, const char *what) {
    const char *text;
    if (!status) return;
    cuGetErrorString(status, &text);
    fprintf(stderr, "%s: status %d: %s\n", what, status, text);
    exit(1);
}

static uint64_t number(void) {
    uint64_t n;
    if (fread(&n, sizeof n, 1, job) != 1) exit(2);
    return n;
}
static char *bytes(uint64_t *length) {
    *length = number();
    char *own = calloc(1, *length + 1);
    if (*length && fread(own, *length, 1, job) != 1) exit(2);
    return own;
}
static char *text(void) {
    uint64_t length;
    return bytes(&length);
}

static Module *compiled(void) {
    const char *options[] = {"--gpu-architecture=sm_90"};
    Program *program;
    Module *module;
    size_t size;
    need(nvrtcCreateProgram(&program, text(), "kernel", 0, 0, 0), "nvrtcCreateProgram");
    Status status = nvrtcCompileProgram(program, 1, options);
    nvrtcGetProgramLogSize(program, &size);
    char *log = malloc(size);
    nvrtcGetProgramLog(program, log);
    if (status) fprintf(stderr, "%s\n", log);
    need(status, "nvrtcCompileProgram");
    nvrtcGetCUBINSize(program, &size);
    char *binary = malloc(size);
    nvrtcGetCUBIN(program, binary);
    need(cuModuleLoadData(&module, binary), "cuModuleLoadData");
    return module;
}

/* An argument of any number of fields: each is a place in a buffer, by the buffer's number and an offset, or a value. */
static void *argument(const Address *buffers) {
    char *all = 0;
    size_t size = 0;
    for (uint64_t fields = number(); fields; fields--) {
        Address at;
        uint64_t length = sizeof at;
        char *field = (char *)&at;
        if (number()) {
            at = buffers[number()];
            at += number();
        } else {
            field = bytes(&length);
        }
        all = realloc(all, size + length);
        memcpy(all + size, field, length);
        size += length;
    }
    return all;
}

static void launch(Module *module, Stream *stream, const Address *buffers) {
    Function *function;
    void *arguments[MOST];
    need(cuModuleGetFunction(&function, module, text()), "cuModuleGetFunction");
    unsigned n[7];
    for (int i = 0; i < 7; i++) n[i] = number();
    uint64_t consent = number(), count = number();
    if (consent) need(cuFuncSetAttribute(function, MAX_DYNAMIC_SHARED_SIZE_BYTES, consent), "cuFuncSetAttribute");
    for (uint64_t i = 0; i < count; i++) arguments[i] = argument(buffers);
    need(cuLaunchKernel(function, n[0], n[1], n[2], n[3], n[4], n[5], n[6], stream, arguments, 0), "cuLaunchKernel");
}

int main(int count, char **names) {
    static uint64_t lengths[MOST];
    static Address buffers[MOST];
    static char *contents[MOST];
    Stream *stream;
    if (count != 3 || !(job = fopen(names[1], "rb"))) return 2;
    need(cuCtxSetCurrent(&stream), "cuCtxSetCurrent");
    need(cuStreamCreate(&stream, 0), "cuStreamCreate");
    Module *module = compiled();
    uint64_t n = number();
    if (n > MOST) return 2;
    for (uint64_t i = 0; i < n; i++) {
        contents[i] = bytes(&lengths[i]);
        need(cuMemAlloc_v2(&buffers[i], lengths[i] ? lengths[i] : 1), "cuMemAlloc");
        need(cuMemcpyHtoDAsync_v2(buffers[i], contents[i], lengths[i], stream), "cuMemcpyHtoDAsync");
    }
    for (uint64_t launches = number(); launches; launches--) launch(module, stream, buffers);
    need(cuStreamSynchronize(stream), "cuStreamSynchronize");
    FILE *result = fopen(names[2], "wb");
    for (uint64_t i = 0; i < n; i++) {
        need(cuMemcpyDtoHAsync_v2(contents[i], buffers[i], lengths[i], stream), "cuMemcpyDtoHAsync");
        need(cuMemFree_v2(buffers[i]), "cuMemFree");
        fwrite(contents[i], lengths[i], 1, result);
    }
    return fclose(result);
}
