/* The CUDA that kernels may use, in C. A kernel's text is compiled behind this file, so it is in the language that CUDA C++ and C
 * have in common: functions of the device are `static`, structs are named by `typedef`, and there are no templates, references or
 * overloads. `__shared__` arrays are in the kernel itself. */
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include "calls.h"

#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __global__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

/* For the table of kernels. */
#define MODEL_FIRST(first, ...) (first)
#define MODEL_SECTION_END __attribute__((weak, visibility("hidden")))
extern char __ehdr_start[] __attribute__((visibility("hidden"))), _end[] __attribute__((visibility("hidden")));
#define MODEL_LIBRARY __ehdr_start, _end

typedef struct { unsigned int x, y, z; } uint3;
typedef struct __align__(8) { float x, y; } float2;
typedef struct __align__(16) { float x, y, z, w; } float4;
typedef struct __align__(8) { int x, y; } int2;
typedef struct __align__(16) { int x, y, z, w; } int4;
typedef struct __align__(8) { unsigned int x, y; } uint2;
typedef struct __align__(16) { unsigned int x, y, z, w; } uint4;
typedef struct __align__(4) { unsigned char x, y, z, w; } uchar4;
typedef struct __align__(4) { unsigned short x, y; } ushort2;
typedef struct __align__(8) { unsigned short x, y, z, w; } ushort4;
#define make_float2(...) ((float2){ __VA_ARGS__ })
#define make_float4(...) ((float4){ __VA_ARGS__ })
#define make_int2(...) ((int2){ __VA_ARGS__ })
#define make_int4(...) ((int4){ __VA_ARGS__ })
#define make_uint2(...) ((uint2){ __VA_ARGS__ })
#define make_uint4(...) ((uint4){ __VA_ARGS__ })
#define make_ushort2(...) ((ushort2){ __VA_ARGS__ })
#define make_ushort4(...) ((ushort4){ __VA_ARGS__ })

#define MODEL_INDEX3(which) ((uint3){ model_index(which), model_index((which) + 1), model_index((which) + 2) })
#define threadIdx MODEL_INDEX3(MODEL_THREAD)
#define blockIdx MODEL_INDEX3(MODEL_BLOCK)
#define blockDim MODEL_INDEX3(MODEL_BLOCK_EXTENT)
#define gridDim MODEL_INDEX3(MODEL_GRID_EXTENT)
enum { warpSize = 32 };

#define __syncthreads() ((void)model_barrier(__LINE__, 0))
#define __syncthreads_count(predicate) ((int)model_barrier(__LINE__, (predicate) != 0))
#define __syncthreads_or(predicate) (model_barrier(__LINE__, (predicate) != 0) != 0)
#define __syncthreads_and(predicate) (model_barrier(__LINE__, (predicate) == 0) == 0)

/* The last of an argument that may be left out is its default or the argument. */
#define __syncwarp(...) ((void)model_exchange(__LINE__, MODEL_SYNC, (0xffffffffu, ##__VA_ARGS__), 0, 0, 32))
#define __ballot_sync(mask, predicate) ((unsigned int)model_exchange(__LINE__, MODEL_VOTE, mask, (predicate) != 0, 0, 32))
#define __any_sync(mask, predicate) (model_exchange(__LINE__, MODEL_VOTE, mask, (predicate) != 0, 0, 32) != 0)
#define __all_sync(mask, predicate) (model_exchange(__LINE__, MODEL_VOTE, mask, (predicate) == 0, 0, 32) == 0)
#define __shfl_sync(mask, value, lane, ...) MODEL_SHUFFLE(MODEL_INDEX, mask, value, lane, (32, ##__VA_ARGS__))
#define __shfl_up_sync(mask, value, by, ...) MODEL_SHUFFLE(MODEL_UP, mask, value, by, (32, ##__VA_ARGS__))
#define __shfl_down_sync(mask, value, by, ...) MODEL_SHUFFLE(MODEL_DOWN, mask, value, by, (32, ##__VA_ARGS__))
#define __shfl_xor_sync(mask, value, lanes, ...) MODEL_SHUFFLE(MODEL_XOR, mask, value, lanes, (32, ##__VA_ARGS__))
#define MODEL_SHUFFLE(kind, mask, value, argument, width) \
    _Generic((value), float: model_shuffle_float, double: model_shuffle_double, int: model_shuffle_int, unsigned int: model_shuffle_unsigned, \
             long: model_shuffle_long, unsigned long: model_shuffle_unsigned_long, long long: model_shuffle_long, \
             unsigned long long: model_shuffle_unsigned_long)(__LINE__, kind, mask, value, argument, width)
#define MODEL_SHUFFLE_OF(name, type) \
    static inline type model_shuffle_##name(int line, ModelExchange kind, unsigned mask, type value, int argument, int width) { \
        uint64_t bits = 0; \
        memcpy(&bits, &value, sizeof value); \
        bits = model_exchange(line, kind, mask, bits, argument, width); \
        memcpy(&value, &bits, sizeof value); \
        return value; \
    }
MODEL_SHUFFLE_OF(float, float)
MODEL_SHUFFLE_OF(double, double)
MODEL_SHUFFLE_OF(int, int)
MODEL_SHUFFLE_OF(unsigned, unsigned int)
MODEL_SHUFFLE_OF(long, long long)
MODEL_SHUFFLE_OF(unsigned_long, unsigned long long)

#define __ldg(place) (*(place))
#define __threadfence() ((void)0)
#define __threadfence_block() ((void)0)

static inline float __uint_as_float(unsigned int bits) { float x; memcpy(&x, &bits, 4); return x; }
static inline unsigned int __float_as_uint(float x) { unsigned int bits; memcpy(&bits, &x, 4); return bits; }
static inline float __int_as_float(int bits) { float x; memcpy(&x, &bits, 4); return x; }
static inline int __float_as_int(float x) { int bits; memcpy(&bits, &x, 4); return bits; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float rsqrtf(float x) { return (float)(1.0 / sqrt(x)); }
static inline float normcdff(float x) { return (float)(0.5 * erfc(-(double)x * 0.70710678118654752440)); }

/* The models of the instructions that kernels/src/cuda/instructions.cu has for a GPU. */
#define ldmatrix_x4(to, row) model_ldmatrix(__LINE__, 4, 0, to, row)
#define ldmatrix_x4_trans(to, row) model_ldmatrix(__LINE__, 4, 1, to, row)
#define ldmatrix_x2(to, row) model_ldmatrix(__LINE__, 2, 0, to, row)
#define ldmatrix_x2_trans(to, row) model_ldmatrix(__LINE__, 2, 1, to, row)
#define mma_bf16(sums, a, b) model_mma(__LINE__, MODEL_BF16, sums, a, b)
#define mma_f16(sums, a, b) model_mma(__LINE__, MODEL_F16, sums, a, b)
#define cp_async(to, from, bytes) model_cp_async(to, from, bytes)
#define cp_async_commit() model_cp_async_commit()
#define cp_async_wait(groups) model_cp_async_wait(groups)
#define pack_bf16(low, high) (store_bf16(low) | (unsigned int)store_bf16(high) << 16)
#define pack_f16(low, high) (store_f16(low) | (unsigned int)store_f16(high) << 16)
static inline float exp2_approx(float x) { float power = exp2f(x); return power < 0x1p-126f ? 0.0f : power; }
static inline int __ffs(int bits) { return __builtin_ffs(bits); }
