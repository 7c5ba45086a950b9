// Makes calls of the C library fail, for tests: LD_PRELOAD this, and MESHWRIGHT_FAIL=CALL:FROM:LAST:ERRNO makes the calls of a
// kind from the FROM-th to the LAST-th fail. The kinds: create, open, read, write, sync, rename, remove, mkdir. Standard
// streams and the system's own files are left alone.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char kind[16];
static long from, last;
static int error;
static atomic_long calls;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void configure(void) {
    const char *text = getenv("MESHWRIGHT_FAIL");
    if (!text || sscanf(text, "%15[^:]:%ld:%ld:%d", kind, &from, &last, &error) != 4)
        kind[0] = 0;
}

static int fails(const char *call) {
    pthread_once(&once, configure);
    if (strcmp(kind, call))
        return 0;
    long number = atomic_fetch_add(&calls, 1) + 1;
    if (number < from || number > last)
        return 0;
    errno = error;
    return 1;
}

static int is_system(const char *path) {
    const char *roots[] = {"/proc", "/sys", "/dev", "/lib", "/usr", "/etc"};
    for (size_t at = 0; at < sizeof roots / sizeof *roots; at++)
        if (!strncmp(path, roots[at], strlen(roots[at])))
            return 1;
    return 0;
}

// A regular file that is no standard stream.
static int is_data(int file) {
    struct stat status;
    return file > 2 && !fstat(file, &status) && S_ISREG(status.st_mode);
}

static const char *kind_of_open(int flags) { return flags & O_CREAT ? "create" : "open"; }

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define OPEN(name)                                                                                                            \
    int name(const char *path, int flags, ...) {                                                                              \
        va_list rest;                                                                                                         \
        va_start(rest, flags);                                                                                                \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;                                               \
        va_end(rest);                                                                                                         \
        return !is_system(path) && fails(kind_of_open(flags)) ? -1 : REAL(name)(path, flags, mode);                           \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                                                          \
    int name(int folder, const char *path, int flags, ...) {                                                                  \
        va_list rest;                                                                                                         \
        va_start(rest, flags);                                                                                                \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;                                               \
        va_end(rest);                                                                                                         \
        return !is_system(path) && fails(kind_of_open(flags)) ? -1 : REAL(name)(folder, path, flags, mode);                   \
    }
OPENAT(openat)
OPENAT(openat64)

ssize_t read(int file, void *bytes, size_t size) {
    return is_data(file) && fails("read") ? -1 : REAL(read)(file, bytes, size);
}

ssize_t write(int file, const void *bytes, size_t size) {
    return is_data(file) && fails("write") ? -1 : REAL(write)(file, bytes, size);
}

ssize_t writev(int file, const struct iovec *pieces, int count) {
    return is_data(file) && fails("write") ? -1 : REAL(writev)(file, pieces, count);
}

int fsync(int file) { return fails("sync") ? -1 : REAL(fsync)(file); }

int fdatasync(int file) { return fails("sync") ? -1 : REAL(fdatasync)(file); }

int rename(const char *old, const char *new) { return fails("rename") ? -1 : REAL(rename)(old, new); }

int unlink(const char *path) { return fails("remove") ? -1 : REAL(unlink)(path); }

int unlinkat(int folder, const char *path, int flags) { return fails("remove") ? -1 : REAL(unlinkat)(folder, path, flags); }

int mkdir(const char *path, mode_t mode) { return fails("mkdir") ? -1 : REAL(mkdir)(path, mode); }
