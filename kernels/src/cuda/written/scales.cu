// The least power of two by which numbers of at most a size are divided to be within a format, from the exponents and the mantissas.
FUNCTION float least_scale(float most) {
    unsigned int bits = __float_as_uint(most);
    int scale = (int)(bits >> 23) - (int)(LARGEST >> 23) + ((bits & 0x7fffffu) > (LARGEST & 0x7fffffu));
    scale = scale + 127 < 1 ? 1 : scale + 127;
    return __uint_as_float((unsigned int)scale << 23);
}

extern "C" __global__ void __launch_bounds__(256) scale_for(const float* most, float* out, unsigned long long adds) {
    for (unsigned long long i = FIRST_THREAD; i < N; i += THREADS) {
        float scale = (__float_as_uint(most[i]) & 0x7f800000u) == 0x7f800000u ? most[i] : least_scale(most[i]);
        out[i] = adds & 1 ? out[i] + scale : scale;
    }
}

extern "C" __global__ void __launch_bounds__(256) delayed_scale(const float* ages, float* out, unsigned long long adds) {
    if (FIRST_THREAD > 0) return;
    int exponent = 254;
    while (exponent >= 0 && !(ages[exponent] < WITHIN)) exponent--;
    float scale = exponent < 0 ? 1.0f : least_scale(__uint_as_float((unsigned int)exponent << 23 | 0x7fffffu));
    out[0] = adds & 1 ? out[0] + scale : scale;
}
