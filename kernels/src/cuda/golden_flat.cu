
FUNCTION unsigned long long place0(unsigned long long index) {
    unsigned int rest = (unsigned int)index;
    unsigned long long place = 0ull;
    place += rest % 8u * 0ull;
    rest /= 8u;
    place += rest % 8u * 1ull;
    rest /= 8u;
    return place;
}

extern "C" __global__ void group(
    const float* in0,
    const unsigned short* in1,
    const float* in2,
    unsigned short* out0,
    unsigned short* out1,
    unsigned long long n,
    unsigned long long adds
) {
    unsigned long long first = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long threads = (unsigned long long)gridDim.x * blockDim.x;
    unsigned long long fours = (unsigned long long)in0 % 16 + (unsigned long long)in1 % 8 + (unsigned long long)out0 % 8 + (unsigned long long)out1 % 8 + adds == 0 ? n / 4 : 0;
    for (unsigned long long i = first; i < fours; i += threads) {
        unsigned long long e0 = 4 * i + 0;
        float4 a0 = ((const float4*)in0)[i];
        ushort4 a1 = ((const ushort4*)in1)[i];
        float v1 = load_f32(a0.x);
        float v2 = unary_silu(v1);
        float v3 = round_bf16(v2);
        float v4 = load_bf16(a1.x);
        float v5 = binary_mul(v3, v4);
        unsigned long long p6 = place0(e0);
        float v7 = load_f32(in2[p6]);
        float v8 = binary_mul(v5, v7);
        float v9 = unary_shift(v8, 0.1f);
        float v10 = load_f32(a0.y);
        float v11 = unary_silu(v10);
        float v12 = round_bf16(v11);
        float v13 = load_bf16(a1.y);
        float v14 = binary_mul(v12, v13);
        float v15 = binary_mul(v14, v7);
        float v16 = unary_shift(v15, 0.1f);
        float v17 = load_f32(a0.z);
        float v18 = unary_silu(v17);
        float v19 = round_bf16(v18);
        float v20 = load_bf16(a1.z);
        float v21 = binary_mul(v19, v20);
        float v22 = binary_mul(v21, v7);
        float v23 = unary_shift(v22, 0.1f);
        float v24 = load_f32(a0.w);
        float v25 = unary_silu(v24);
        float v26 = round_bf16(v25);
        float v27 = load_bf16(a1.w);
        float v28 = binary_mul(v26, v27);
        float v29 = binary_mul(v28, v7);
        float v30 = unary_shift(v29, 0.1f);
        ushort4 y0;
        y0.x = store_bf16(v2);
        ushort4 y1;
        y1.x = store_bf16(v9);
        y0.y = store_bf16(v11);
        y1.y = store_bf16(v16);
        y0.z = store_bf16(v18);
        y1.z = store_bf16(v23);
        y0.w = store_bf16(v25);
        y1.w = store_bf16(v30);
        ((ushort4*)out0)[i] = y0;
        ((ushort4*)out1)[i] = y1;
    }
    for (unsigned long long e = 4 * fours + first; e < n; e += threads) {
        float v31 = load_f32(in0[e]);
        float v32 = unary_silu(v31);
        float v33 = round_bf16(v32);
        float v34 = load_bf16(in1[e]);
        float v35 = binary_mul(v33, v34);
        unsigned long long p36 = place0(e);
        float v37 = load_f32(in2[p36]);
        float v38 = binary_mul(v35, v37);
        float v39 = unary_shift(v38, 0.1f);
        out0[e] = store_bf16(v32);
        out1[e] = store_bf16(adds >> 1 & 1 ? load_bf16(out1[e]) + v39 : v39);
    }
}
