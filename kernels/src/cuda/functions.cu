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

FUNCTION float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// Twice the argument of GELU's tanh: (1 + tanh u) / 2 is sigmoid(2u). The factor is 2 sqrt(2 / pi).
FUNCTION float gelu_argument(float x) { return 1.5957692f * (x + 0.044715f * x * x * x); }

FUNCTION float unary_neg(float x) { return -x; }
FUNCTION float unary_exp(float x) { return expf(x); }
FUNCTION float unary_log(float x) { return logf(x); }
FUNCTION float unary_sqrt(float x) { return sqrtf(x); }
FUNCTION float unary_rsqrt(float x) { return 1.0f / sqrtf(x); }
FUNCTION float unary_recip(float x) { return 1.0f / x; }
FUNCTION float unary_square(float x) { return x * x; }
FUNCTION float unary_tanh(float x) { return tanhf(x); }
FUNCTION float unary_erf(float x) { return erff(x); }
FUNCTION float unary_sin(float x) { return sinf(x); }
FUNCTION float unary_cos(float x) { return cosf(x); }
FUNCTION float unary_sigmoid(float x) { return sigmoid(x); }
FUNCTION float unary_silu(float x) { return x * sigmoid(x); }
FUNCTION float unary_gelu(float x) { return x * sigmoid(gelu_argument(x)); }
FUNCTION float unary_gelu_erf(float x) { return x * normcdff(x); }
FUNCTION float relu(float x) { return x < 0.0f ? 0.0f : x; }
FUNCTION float unary_relu_squared(float x) { return relu(x) * relu(x); }
FUNCTION float unary_scale(float x, float by) { return by * x; }
FUNCTION float unary_shift(float x, float by) { return x + by; }
FUNCTION float unary_at_most(float x, float max) { return x > max ? max : x; }
FUNCTION float unary_at_least(float x, float min) { return x < min ? min : x; }

FUNCTION float binary_add(float a, float b) { return a + b; }
FUNCTION float binary_sub(float a, float b) { return a - b; }
FUNCTION float binary_mul(float a, float b) { return a * b; }
FUNCTION float binary_div(float a, float b) { return a / b; }
FUNCTION float binary_max(float a, float b) { return a > b || a != a ? a : b; }
FUNCTION float binary_min(float a, float b) { return a < b || a != a ? a : b; }

// From the result of the sigmoid.
FUNCTION float binary_sigmoid_grad(float y, float dy) { return dy * (y * (1.0f - y)); }

FUNCTION float binary_silu_grad(float x, float dy) {
    float s = sigmoid(x);
    return dy * (s * (1.0f + x * (1.0f - s)));
}

// Beyond 32 the slope is 0 or 1 to the last bit, and the square of a large argument would overflow.
FUNCTION float binary_gelu_grad(float x, float dy) {
    x = x < -32.0f ? -32.0f : x;
    x = x > 32.0f ? 32.0f : x;
    float s = sigmoid(gelu_argument(x));
    return dy * (s + x * s * (1.0f - s) * 1.5957692f * (1.0f + 3.0f * 0.044715f * x * x));
}

// The factor is 1 / sqrt(2 pi).
FUNCTION float binary_relu_squared_grad(float x, float dy) { return 2.0f * (dy * relu(x)); }
FUNCTION float binary_gelu_erf_grad(float x, float dy) {
    return dy * (normcdff(x) + x * 0.3989423f * expf(-0.5f * x * x));
}
