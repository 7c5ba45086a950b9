#define _GNU_SOURCE
#include "streams.h"
#include "modules.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { const ModelKernel *kernel; size_t dynamic; } Function;

/* A binary is the path of a shared library with a table of kernels. */
Status cuModuleLoadData(void **module, const void *binary) {
    ONE_AT_A_TIME;
    if (forbidden_in_capture()) return CAPTURE_UNSUPPORTED;
    *module = dlopen(binary, RTLD_NOW | RTLD_LOCAL);
    return *module ? failed() : NO_BINARY;
}
Status cuModuleUnload(void *module) {
    ONE_AT_A_TIME;
    finish_all();
    dlclose(module);
    return failed();
}

static size_t fixed(const ModelKernel *kernel) { return kernel->shared_end - kernel->shared; }

const ModelKernel *oversized_kernel(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return 0;
    const ModelKernel *kernel = dlsym(library, KERNELS);
    while (kernel->name && fixed(kernel) <= MOST_SHARED) kernel++;
    if (kernel->name) return kernel;
    dlclose(library);
    return 0;
}

Status cuModuleGetFunction(Function **function, void *module, const char *name) {
    ONE_AT_A_TIME;
    const ModelKernel *kernel = dlsym(module, KERNELS);
    while (kernel->name && strcmp(kernel->name, name)) kernel++;
    if (!kernel->name) return NOT_FOUND;
    *function = malloc(sizeof **function);
    **function = (Function){kernel, MOST_SHARED - fixed(kernel)};
    return failed();
}

enum { SHARED_SIZE_BYTES = 1, MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 };
Status cuFuncGetAttribute(int *value, int attribute, Function *function) {
    switch (attribute) {
        case SHARED_SIZE_BYTES: *value = fixed(function->kernel); break;
        case MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = function->dynamic; break;
        default: return INVALID_VALUE;
    }
    return failed();
}
Status cuFuncSetAttribute(Function *function, int attribute, int value) {
    int most = MOST_SHARED_BY_CONSENT - (int)fixed(function->kernel);
    if (attribute != MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 || value > most) return INVALID_VALUE;
    function->dynamic = value;
    return failed();
}

/* What a launch keeps until it runs; behind it are the values of the parameters, each at a multiple of 16. */
typedef struct { const ModelKernel *kernel; Extent grid, block; size_t dynamic; } Launch;
enum { PARAMETERS = 64, ALIGNED = 16 };
static size_t place(size_t bytes) { return (bytes + ALIGNED - 1) / ALIGNED * ALIGNED; }

static Status run(void *data) {
    Launch *launch = data;
    char *at = (char *)data + place(sizeof *launch);
    void *values[PARAMETERS];
    for (unsigned i = 0; i < launch->kernel->parameters; i++) {
        values[i] = at;
        at += place(launch->kernel->sizes[i]);
    }
    const char *crashes = getenv("STAND_IN_CRASH");
    if (crashes && !strcmp(crashes, launch->kernel->name)) return fail(ILLEGAL_ADDRESS, "an illegal address");
    Status status = model_launch(launch->kernel, values, launch->grid, launch->block, launch->dynamic);
    if (faulty()) model_spoil();
    return status ? fail(status, model_failure()) : OK;
}

Status cuLaunchKernel(Function *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned dynamic,
                      Stream *stream, void **arguments, void **extra) {
    ONE_AT_A_TIME;
    const ModelKernel *kernel = function->kernel;
    if (!has_context()) return INVALID_CONTEXT;
    if (gx - 1u > 0x7ffffffe || gy - 1u > 65534 || gz - 1u > 65534 || bx - 1u > 1023 || by - 1u > 1023 || bz - 1u > 63) return INVALID_VALUE;
    if (bx * by * bz > 1024 || dynamic > function->dynamic || extra || kernel->parameters > PARAMETERS) return INVALID_VALUE;
    if (bx * by * bz > kernel->threads) return OUT_OF_RESOURCES;
    size_t bytes = place(sizeof(Launch));
    for (unsigned i = 0; i < kernel->parameters; i++) bytes += place(kernel->sizes[i]);
    char *data = calloc(1, bytes), *at = data + place(sizeof(Launch));
    *(Launch *)data = (Launch){kernel, {gx, gy, gz}, {bx, by, bz}, dynamic};
    for (unsigned i = 0; i < kernel->parameters; at += place(kernel->sizes[i]), i++) memcpy(at, arguments[i], kernel->sizes[i]);
    Status status = give(stream, run, data, bytes);
    free(data);
    return status ? status : failed();
}
