// Instructions that CUDA C has no functions for, and all assembly of the kernels. Where they are not compiled for a GPU, models in C have
// their names: the stand-in's, which follow the tables of the PTX ISA. `trials.cu` compares the two.
#ifdef __CUDACC__
FUNCTION unsigned int in_shared(const void* at) { return (unsigned int)__cvta_generic_to_shared(at); }

// Matrices of 8 rows of 16 bytes, whose addresses 8 lanes each give: the lanes get two neighbours of a row, or transposed of a column.
#define DEFINE_LDMATRIX_X4(name, how) \
    FUNCTION void name(unsigned int* to, const void* row) { \
        asm volatile("ldmatrix.sync.aligned.m8n8.x4" how ".shared.b16 {%0, %1, %2, %3}, [%4];" \
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(in_shared(row)) : "memory"); \
    }
#define DEFINE_LDMATRIX_X2(name, how) \
    FUNCTION void name(unsigned int* to, const void* row) { \
        asm volatile("ldmatrix.sync.aligned.m8n8.x2" how ".shared.b16 {%0, %1}, [%2];" \
                     : "=r"(to[0]), "=r"(to[1]) : "r"(in_shared(row)) : "memory"); \
    }
DEFINE_LDMATRIX_X4(ldmatrix_x4, "")
DEFINE_LDMATRIX_X4(ldmatrix_x4_trans, ".trans")
DEFINE_LDMATRIX_X2(ldmatrix_x2, "")
DEFINE_LDMATRIX_X2(ldmatrix_x2_trans, ".trans")

// sums [16, 8] += a [16, 16] b [16, 8], in f32.
#define DEFINE_MMA(name, format) \
    FUNCTION void name(float* sums, const unsigned int* a, const unsigned int* b) { \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." format "." format ".f32 " \
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                     : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); \
    }
DEFINE_MMA(mma_bf16, "bf16")
DEFINE_MMA(mma_f16, "f16")

// Two numbers in a word, the first in its low half.
#define DEFINE_PACK(name, format) \
    FUNCTION unsigned int name(float low, float high) { \
        unsigned int both; \
        asm("cvt.rn." format "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low)); \
        return both; \
    }
DEFINE_PACK(pack_bf16, "bf16")
DEFINE_PACK(pack_f16, "f16")

// Copies 16 bytes, or none and leaves zeros, to shared memory. They have come when the thread has waited.
FUNCTION void cp_async(void* to, const void* from, unsigned int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(in_shared(to)), "l"(from), "r"(bytes) : "memory");
}
// Ends a group of copies.
FUNCTION void cp_async_commit(void) { asm volatile("cp.async.commit_group;" : : : "memory"); }
// Waits until at most a number of the thread's groups, the last ones, are on their way. The number is a constant.
#define cp_async_wait(groups) asm volatile("cp.async.wait_group %0;" : : "n"(groups) : "memory")

// The power of 2, with an error of 2^-22 of it; 0 where it is below the normal numbers.
FUNCTION float exp2_approx(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}
#endif

