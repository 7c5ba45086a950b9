/* The CUDA that generated kernels use, in plain C. */
#include <math.h>
#include <string.h>

#define __device__
#define __forceinline__ inline
#define __global__

typedef struct { float x, y, z, w; } float4;
typedef struct { unsigned short x, y, z, w; } ushort4;
static struct { unsigned int x; } blockIdx, blockDim, gridDim, threadIdx;

static inline float __uint_as_float(unsigned int bits) { float x; memcpy(&x, &bits, 4); return x; }
static inline unsigned int __float_as_uint(float x) { unsigned int bits; memcpy(&bits, &x, 4); return bits; }
static inline float normcdff(float x) { return (float)(0.5 * erfc(-(double)x * 0.70710678118654752440)); }
