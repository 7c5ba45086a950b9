// What generated kernels call. Each function computes what kernels::cpu::elementwise computes, operation by operation;
// compiled without contraction of products and sums (--fmad=false) they differ only in the functions of the device's own library, as expf and erff.

#define FUNCTION static __device__ __forceinline__

FUNCTION float load_f32(float x) { return x; }
FUNCTION float store_f32(float x) { return x; }

FUNCTION float load_bf16(unsigned short x) { return __uint_as_float((unsigned int)x << 16); }

// To nearest, ties to even; a NaN stays one.
FUNCTION unsigned short store_bf16(float x) {
    unsigned int bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (unsigned short)((bits >> 16) | 0x40u);
    return (unsigned short)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

FUNCTION int load_i32(int x) { return x; }
FUNCTION int store_i32(int x) { return x; }

// The exponent's bias is 15 there and 127 here.
FUNCTION float load_f16(unsigned short x) {
    unsigned int sign = (x & 0x8000u) << 16, size = x & 0x7fffu;
    if (size >= 0x7c00u) return __uint_as_float(sign | 0x7f800000u | size << 13);
    return __uint_as_float(sign | size << 13) * 5192296858534827628530496329220096.0f;
}

// Below the normal numbers the last place is 2^-24, that of f32 from 1/2 on.
FUNCTION unsigned short store_f16(float x) {
    unsigned int bits = __float_as_uint(x), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return (unsigned short)(sign | 0x7e00u);
    if (size >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u);
    if (size < 0x38800000u) {
        return (unsigned short)(sign | (__float_as_uint(__uint_as_float(size) + 0.5f) - 0x3f000000u));
    }
    return (unsigned short)(sign | (size + 0xfffu + (size >> 13 & 1u) - 0x38000000u) >> 13);
}

// The exponent's bias is 7, and there is no infinity.
FUNCTION float load_f8e4m3(unsigned char x) {
    unsigned int sign = (x & 0x80u) << 24, size = x & 0x7fu;
    if (size == 0x7fu) return __uint_as_float(sign | 0x7ff00000u);
    return __uint_as_float(sign | size << 20) * 1329227995784915872903807060280344576.0f;
}

// What exceeds the largest number becomes that. Below the normal numbers the last place is 2^-9, that of f32 from 2^14 on.
FUNCTION unsigned char store_f8e4m3(float x) {
    unsigned int bits = __float_as_uint(x), sign = bits >> 24 & 0x80u, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return (unsigned char)(sign | 0x7fu);
    if (size >= 0x43e00000u) return (unsigned char)(sign | 0x7eu);
    if (size < 0x3c800000u) {
        return (unsigned char)(sign | (__float_as_uint(__uint_as_float(size) + 16384.0f) - 0x46800000u));
    }
    return (unsigned char)(sign | (size + 0x7ffffu + (size >> 20 & 1u) - 0x3c000000u) >> 20);
}

// The upper half of an f16.
FUNCTION float load_f8e5m2(unsigned char x) { return load_f16((unsigned short)(x << 8)); }

// The last place below the normal numbers is 2^-16, that of f32 from 2^7 on.
FUNCTION unsigned char store_f8e5m2(float x) {
    unsigned int bits = __float_as_uint(x), sign = bits >> 24 & 0x80u, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return (unsigned char)(sign | 0x7eu);
    if (size >= 0x47600000u) return (unsigned char)(sign | 0x7bu);
    if (size < 0x38800000u) {
        return (unsigned char)(sign | (__float_as_uint(__uint_as_float(size) + 128.0f) - 0x43000000u));
    }
    return (unsigned char)(sign | (size + 0xfffffu + (size >> 21 & 1u) - 0x38000000u) >> 21);
}

FUNCTION float round_bf16(float x) { return load_bf16(store_bf16(x)); }
FUNCTION float round_f16(float x) { return load_f16(store_f16(x)); }
FUNCTION float round_f8e4m3(float x) { return load_f8e4m3(store_f8e4m3(x)); }
FUNCTION float round_f8e5m2(float x) { return load_f8e5m2(store_f8e5m2(x)); }

FUNCTION float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// ln(1 + e^x), exact also where 1 + e^-|x| is near 1 (Goldberg 1991, theorem 4).
FUNCTION float softplus(float x) {
    float power = expf(-fabsf(x));
    float next = 1.0f + power;
    float log = next == 1.0f ? power : logf(next) * (power / (next - 1.0f));
    return (x < 0.0f ? 0.0f : x) + log;
}

// Twice the argument of GELU's tanh: (1 + tanh u) / 2 is sigmoid(2u). The factor is 2 sqrt(2 / pi).
FUNCTION float gelu_argument(float x) { return 1.5957692f * (x + 0.044715f * x * x * x); }

FUNCTION float relu(float x) { return x < 0.0f ? 0.0f : x; }

// Philox4x32-10: one of the four words of block `counter / 4`, as a number in [0, 1).
FUNCTION float uniform(unsigned long long key, unsigned long long counter) {
    unsigned int k0 = (unsigned int)key, k1 = (unsigned int)(key >> 32);
    unsigned int x0 = (unsigned int)(counter >> 2), x1 = (unsigned int)(counter >> 34), x2 = 0, x3 = 0;
    for (int round = 0; round < 10; round++) {
        unsigned long long a = (unsigned long long)x0 * 0xd2511f53u, b = (unsigned long long)x2 * 0xcd9e8d57u;
        x0 = (unsigned int)(b >> 32) ^ x1 ^ k0;
        x1 = (unsigned int)b;
        x2 = (unsigned int)(a >> 32) ^ x3 ^ k1;
        x3 = (unsigned int)a;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    unsigned int even = counter & 2 ? x2 : x0, odd = counter & 2 ? x3 : x1;
    return (float)((counter & 1 ? odd : even) >> 8) * 5.9604645e-8f;
}

FUNCTION unsigned long long hashed(unsigned long long hash, unsigned long long byte) { return (hash ^ byte) * 0x100000001b3ull; }

// The hash (FNV-1a) of three numbers and a path.
FUNCTION unsigned long long key(
    unsigned long long seed, unsigned long long step, unsigned long long index, const unsigned char* path, unsigned int length
) {
    unsigned long long hash = 0xcbf29ce484222325ull;
    for (int i = 0; i < 8; i++) hash = hashed(hash, seed >> 8 * i & 255u);
    for (int i = 0; i < 8; i++) hash = hashed(hash, step >> 8 * i & 255u);
    for (int i = 0; i < 8; i++) hash = hashed(hash, index >> 8 * i & 255u);
    for (unsigned int i = 0; i < length; i++) hash = hashed(hash, path[i]);
    return hash;
}

// An element of a head of which `half` pairs turn and grow by a factor; `other` is the other one of its pair. Whole turns go in double
// precision.
FUNCTION float rotated(
    float x, float other, int position, const double* turns, unsigned int place, unsigned int half, float gain
) {
    if (place >= 2 * half) return x;
    double quarters = (double)position * turns[place < half ? place : place - half] * 4.0;
    // Adding and subtracting it rounds to the nearest integer.
    double whole = quarters + 6755399441055744.0 - 6755399441055744.0;
    float angle = (float)((quarters - whole) * 1.5707963267948966), square = angle * angle;
    float sine = 1.0f / 362880.0f;
    sine = sine * square - 1.0f / 5040.0f;
    sine = sine * square + 1.0f / 120.0f;
    sine = sine * square - 1.0f / 6.0f;
    sine = sine * square * angle + angle;
    float cosine = 1.0f / 40320.0f;
    cosine = cosine * square - 1.0f / 720.0f;
    cosine = cosine * square + 1.0f / 24.0f;
    cosine = cosine * square - 0.5f;
    cosine = cosine * square + 1.0f;
    unsigned int quarter = (unsigned int)(long long)whole;
    float c = quarter & 1 ? sine : cosine, s = quarter & 1 ? cosine : sine;
    c = quarter + 1 & 2 ? -c : c;
    s = quarter & 2 ? -s : s;
    return gain * (place < half ? x * c - other * s : x * c + other * s);
}
