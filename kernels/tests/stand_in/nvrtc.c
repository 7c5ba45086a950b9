/* NVRTC: writes a kernel's text as C, and lets `cc` compile it to a shared library. */
#define _GNU_SOURCE
#include "driver.h"
#include "modules.h"
#include "source.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

typedef struct { char *source, *log, path[300]; } Text;
enum { COMPILATION = 6 };

Status nvrtcVersion(int *major, int *minor) { return *major = 13, *minor = 2, OK; }
Status nvrtcCreateProgram(Text **text, const char *source, const char *name, int n, void *h, void *i) {
    *text = calloc(1, sizeof **text);
    (*text)->source = strdup(source);
    (*text)->log = strdup("");
    return OK;
}
Status nvrtcDestroyProgram(Text **text) {
    free((*text)->source);
    free((*text)->log);
    free(*text);
    return OK;
}
Status nvrtcGetProgramLogSize(Text *text, size_t *size) { return *size = strlen(text->log) + 1, OK; }
Status nvrtcGetProgramLog(Text *text, char *log) { return strcpy(log, text->log), OK; }
Status nvrtcGetCUBINSize(Text *text, size_t *size) { return *size = strlen(text->path) + 1, OK; }
Status nvrtcGetCUBIN(Text *text, char *binary) { return strcpy(binary, text->path), OK; }

static Status refuse(Text *text, char *log) {
    free(text->log);
    text->log = log ? log : strdup("no log");
    return COMPILATION;
}

static char *read_file(const char *path) {
    char *content = 0;
    size_t bytes = 0;
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    if (getdelim(&content, &bytes, 0, file) < 0) content = 0;
    fclose(file);
    return content;
}

/* Instruments kernels for accesses.c. Kernels see floats through vectors of four, against the rules of C. */
#define COMPILE \
    "cc -std=gnu11 -O1 -ffp-contract=off -fno-strict-aliasing -fsanitize=thread -fsanitize=alignment,bounds -fPIC -c -o '%s.o' '%s.c' " \
    "2>'%s.log'"
#define LINK "cc -shared -o '%s.tmp' '%s.o' '%s' -lm 2>>'%s.log' && mv '%s.tmp' '%s'"

static Status compile(Text *text) {
    char base[340], name[350], command[4000 + PATH_MAX], library[PATH_MAX];
    Dl_info own;
    /* A kernel names the library itself: a link to it may go before the kernel does. */
    if (!dladdr((void *)nvrtcVersion, &own) || !realpath(own.dli_fname, library)) return COMPILATION;
    snprintf(base, sizeof base, "%s.%d", text->path, (int)getpid());
    snprintf(name, sizeof name, "%s.c", base);
    FILE *file = fopen(name, "w");
    if (!file) return COMPILATION;
    const char *why = write_as_c(file, text->source);
    fclose(file);
    if (why) return refuse(text, strdup(why));
    snprintf(command, sizeof command, COMPILE " && " LINK, base, base, base, base, base, library, base, base, text->path);
    snprintf(name, sizeof name, "%s.log", base);
    return system(command) ? refuse(text, read_file(name)) : OK;
}

/* Processes that share the folder compile a text once. */
static Status compile_once(Text *text) {
    char name[320];
    snprintf(name, sizeof name, "%s.lock", text->path);
    int lock = open(name, O_RDWR | O_CREAT, 0600);
    if (lock < 0 || flock(lock, LOCK_EX)) return COMPILATION;
    Status status = access(text->path, R_OK) ? compile(text) : OK;
    close(lock);
    return status;
}

Status nvrtcCompileProgram(Text *text, int count, const char **options) {
    ONE_AT_A_TIME;
    const char *kernels = getenv("STAND_IN_KERNELS"), *folder = kernels ? kernels : getenv("STAND_IN_FOLDER");
    char architecture[40];
    int found = 0;
    snprintf(architecture, sizeof architecture, "--gpu-architecture=sm_%d", capability());
    for (int i = 0; i < count; i++) found |= !strcmp(options[i], architecture);
    if (!found) return COMPILATION;
    uint64_t hash = 0;
    for (char *at = text->source; *at; at++) hash = (hash ^ *at) * 0x100000001b3;
    snprintf(text->path, sizeof text->path, "%s/kernel%lx.so", folder ? folder : "/tmp", hash);
    Status status = compile_once(text);
    const ModelKernel *kernel = status ? 0 : oversized_kernel(text->path);
    if (!kernel) return status;
    char log[200];
    snprintf(log, sizeof log, "kernel `%s` has %zu bytes of static shared memory, more than %d", kernel->name,
             kernel->shared_end - kernel->shared, MOST_SHARED);
    return refuse(text, strdup(log));
}
