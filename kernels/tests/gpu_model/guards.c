/* `guards OFFSET BYTES` fills bytes at an offset from an allocation of 100 bytes, and prints the status with its text. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int cuCtxSetCurrent(void *context);
int cuGetErrorString(int status, const char **text);
int cuStreamCreate(void **stream, unsigned flags);
int cuStreamSynchronize(void *stream);
int cuMemAlloc_v2(uint64_t *at, size_t bytes);
int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void *stream);

int main(int count, char **names) {
    void *stream;
    uint64_t at;
    const char *text;
    if (count != 3 || cuCtxSetCurrent(&stream) || cuStreamCreate(&stream, 0) || cuMemAlloc_v2(&at, 100)) return 1;
    if (cuMemsetD8Async(at + atoi(names[1]), 7, atoi(names[2]), stream)) return 1;
    int status = cuStreamSynchronize(stream);
    cuGetErrorString(status, &text);
    return printf("%d %s\n", status, text) < 0;
}
