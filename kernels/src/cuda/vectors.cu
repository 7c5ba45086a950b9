// Neighbouring elements, as many as a name says: 16 bytes at a time, or 8 or 4, if the address allows it.

FUNCTION void load_4_f32(const float* from, float* to, int is_aligned) {
    if (is_aligned) {
        float4 four = *(const float4*)from;
        to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
    } else {
        for (int i = 0; i < 4; i++) to[i] = from[i];
    }
}

FUNCTION void store_4_f32(float* to, const float* from, int is_aligned) {
    if (is_aligned) {
        *(float4*)to = make_float4(from[0], from[1], from[2], from[3]);
    } else {
        for (int i = 0; i < 4; i++) to[i] = from[i];
    }
}

FUNCTION void load_8_f32(const float* from, float* to, int is_aligned) {
    load_4_f32(from, to, is_aligned);
    load_4_f32(from + 4, to + 4, is_aligned);
}

FUNCTION void store_8_f32(float* to, const float* from, int is_aligned) {
    store_4_f32(to, from, is_aligned);
    store_4_f32(to + 4, from + 4, is_aligned);
}

FUNCTION void load_4_i32(const int* from, int* to, int is_aligned) {
    if (is_aligned) {
        int4 four = *(const int4*)from;
        to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
    } else {
        for (int i = 0; i < 4; i++) to[i] = from[i];
    }
}

FUNCTION void store_4_i32(int* to, const int* from, int is_aligned) {
    if (is_aligned) {
        *(int4*)to = make_int4(from[0], from[1], from[2], from[3]);
    } else {
        for (int i = 0; i < 4; i++) to[i] = from[i];
    }
}

FUNCTION void load_8_i32(const int* from, int* to, int is_aligned) {
    load_4_i32(from, to, is_aligned);
    load_4_i32(from + 4, to + 4, is_aligned);
}

FUNCTION void store_8_i32(int* to, const int* from, int is_aligned) {
    store_4_i32(to, from, is_aligned);
    store_4_i32(to + 4, from + 4, is_aligned);
}

// Two elements of 16 bits in a word.
#define LOAD_TWO(kind, word, to) (to)[0] = load_##kind((unsigned short)((word) & 0xffffu)), (to)[1] = load_##kind((unsigned short)((word) >> 16))
#define STORE_TWO(kind, from) ((unsigned int)store_##kind((from)[0]) | (unsigned int)store_##kind((from)[1]) << 16)

#define NARROW_VECTORS(kind) \
    FUNCTION void load_4_##kind(const unsigned short* from, float* to, int is_aligned) { \
        if (is_aligned) { \
            uint2 words = *(const uint2*)from; \
            LOAD_TWO(kind, words.x, to), LOAD_TWO(kind, words.y, to + 2); \
        } else { \
            for (int i = 0; i < 4; i++) to[i] = load_##kind(from[i]); \
        } \
    } \
    FUNCTION void store_4_##kind(unsigned short* to, const float* from, int is_aligned) { \
        if (is_aligned) { \
            *(uint2*)to = make_uint2(STORE_TWO(kind, from), STORE_TWO(kind, from + 2)); \
        } else { \
            for (int i = 0; i < 4; i++) to[i] = store_##kind(from[i]); \
        } \
    } \
    FUNCTION void load_8_##kind(const unsigned short* from, float* to, int is_aligned) { \
        if (is_aligned) { \
            uint4 words = *(const uint4*)from; \
            LOAD_TWO(kind, words.x, to), LOAD_TWO(kind, words.y, to + 2); \
            LOAD_TWO(kind, words.z, to + 4), LOAD_TWO(kind, words.w, to + 6); \
        } else { \
            for (int i = 0; i < 8; i++) to[i] = load_##kind(from[i]); \
        } \
    } \
    FUNCTION void store_8_##kind(unsigned short* to, const float* from, int is_aligned) { \
        if (is_aligned) { \
            *(uint4*)to = make_uint4( \
                STORE_TWO(kind, from), STORE_TWO(kind, from + 2), STORE_TWO(kind, from + 4), STORE_TWO(kind, from + 6)); \
        } else { \
            for (int i = 0; i < 8; i++) to[i] = store_##kind(from[i]); \
        } \
    }
NARROW_VECTORS(bf16)
NARROW_VECTORS(f16)

// Four elements of 8 bits in a word.
#define LOAD_FOUR(kind, word, to) \
    (to)[0] = load_##kind((unsigned char)((word) & 0xffu)), (to)[1] = load_##kind((unsigned char)((word) >> 8 & 0xffu)), \
    (to)[2] = load_##kind((unsigned char)((word) >> 16 & 0xffu)), (to)[3] = load_##kind((unsigned char)((word) >> 24))
#define STORE_FOUR(kind, from) \
    ((unsigned int)store_##kind((from)[0]) | (unsigned int)store_##kind((from)[1]) << 8 | (unsigned int)store_##kind((from)[2]) << 16 \
     | (unsigned int)store_##kind((from)[3]) << 24)

#define BYTE_VECTORS(kind) \
    FUNCTION void load_4_##kind(const unsigned char* from, float* to, int is_aligned) { \
        if (is_aligned) { \
            unsigned int word = *(const unsigned int*)from; \
            LOAD_FOUR(kind, word, to); \
        } else { \
            for (int i = 0; i < 4; i++) to[i] = load_##kind(from[i]); \
        } \
    } \
    FUNCTION void store_4_##kind(unsigned char* to, const float* from, int is_aligned) { \
        if (is_aligned) { \
            *(unsigned int*)to = STORE_FOUR(kind, from); \
        } else { \
            for (int i = 0; i < 4; i++) to[i] = store_##kind(from[i]); \
        } \
    } \
    FUNCTION void load_8_##kind(const unsigned char* from, float* to, int is_aligned) { \
        if (is_aligned) { \
            uint2 words = *(const uint2*)from; \
            LOAD_FOUR(kind, words.x, to), LOAD_FOUR(kind, words.y, to + 4); \
        } else { \
            for (int i = 0; i < 8; i++) to[i] = load_##kind(from[i]); \
        } \
    } \
    FUNCTION void store_8_##kind(unsigned char* to, const float* from, int is_aligned) { \
        if (is_aligned) { \
            *(uint2*)to = make_uint2(STORE_FOUR(kind, from), STORE_FOUR(kind, from + 4)); \
        } else { \
            for (int i = 0; i < 8; i++) to[i] = store_##kind(from[i]); \
        } \
    }
BYTE_VECTORS(f8e4m3)
BYTE_VECTORS(f8e5m2)
