#include "driver.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int context;
static __thread void *current;
int has_context(void) { return current != 0; }

int capability(void) {
    const char *told = getenv("STAND_IN_CAPABILITY");
    return told ? atoi(told) : 90;
}

Status cuInit(unsigned flags) { return OK; }
Status cuDriverGetVersion(int *version) { return *version = 13020, OK; }
/* STAND_IN_DEVICES is the number of devices, 1 if it is not set. */
Status cuDeviceGetCount(int *count) {
    const char *told = getenv("STAND_IN_DEVICES");
    return *count = told ? atoi(told) : 1, OK;
}
Status cuDeviceGetUuid_v2(char identity[16], int device) {
    memset(identity, 0, 16);
    return identity[0] = device + 1, OK;
}
Status cuDeviceGet(int *device, int ordinal) { return *device = ordinal, OK; }
Status cuDeviceGetName(char *name, int size, int device) { return snprintf(name, size, "no GPU, a stand-in"), OK; }
Status cuDeviceGetAttribute(int *value, int attribute, int device) {
    switch (attribute) {
        case 1: *value = 1024; break;                    /* the most threads of a block */
        case 8: *value = MOST_SHARED; break;             /* bytes of shared memory of a block */
        case 10: *value = 32; break;                     /* threads of a warp */
        case 13: *value = 1000000; break;                /* the clock, kHz */
        case 16: *value = 2; break;                      /* multiprocessors */
        case 36: *value = 1000000; break;                /* the memory's clock, kHz */
        case 37: *value = 64; break;                     /* its bus, bits */
        case 39: *value = 2048; break;                   /* threads of a multiprocessor */
        case 75: *value = capability() / 10; break;      /* compute capability */
        case 76: *value = capability() % 10; break;
        case 81: *value = MOST_SHARED_BY_CONSENT + 1024; break; /* bytes of shared memory of a multiprocessor */
        case 97: *value = MOST_SHARED_BY_CONSENT; break; /* bytes of shared memory of a block, with its kernel's consent */
        default: *value = 0;
    }
    return OK;
}
Status cuDevicePrimaryCtxRetain(void **made, int device) { return *made = &context, OK; }
Status cuDevicePrimaryCtxRelease_v2(int device) { return OK; }
Status cuCtxGetCurrent(void **made) { return *made = current, OK; }
Status cuCtxSetCurrent(void *made) { return current = made, OK; }
