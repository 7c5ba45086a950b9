#define _GNU_SOURCE
#include "fibres.h"
#include "threads.h"
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#ifdef FIBRES_BY_ASSEMBLY
/* Saves what a call preserves on the stack, and the stack's place at `from`; then the reverse with `to`. A switch by `swapcontext`
 * calls the system twice for the mask of signals, which takes many times as long. */
void fibre_swap(void **from, void *to) __attribute__((visibility("hidden")));
#ifdef __x86_64__
enum { SAVED = 8, RETURN = 6 };
__asm__(".text\n.globl fibre_swap\n.hidden fibre_swap\n.type fibre_swap, @function\nfibre_swap:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
#else
enum { SAVED = 20, RETURN = 11 };
__asm__(".text\n.globl fibre_swap\n.hidden fibre_swap\n.type fibre_swap, %function\nfibre_swap:\n"
        "sub sp, sp, #160\n"
        "stp x19, x20, [sp]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\nstp x25, x26, [sp, #48]\n"
        "stp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\n"
        "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\nstp d14, d15, [sp, #144]\n"
        "mov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
        "ldp x19, x20, [sp]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\nldp x25, x26, [sp, #48]\n"
        "ldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\n"
        "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\nldp d14, d15, [sp, #144]\n"
        "add sp, sp, #160\nret\n");
#endif

void fibre_begin(Fibre *fibre, char *stack, size_t bytes, void (*run)(void)) {
    void **saved = (void **)(stack + bytes) - SAVED;
    for (int i = 0; i < SAVED; i++) saved[i] = 0;
    saved[RETURN] = (void *)run;
    fibre->stack = saved;
}
void fibre_switch(Fibre *from, Fibre *to) { fibre_swap(&from->stack, to->stack); }
#else
void fibre_begin(Fibre *fibre, char *stack, size_t bytes, void (*run)(void)) {
    getcontext(&fibre->context);
    fibre->context.uc_stack.ss_sp = stack;
    fibre->context.uc_stack.ss_size = bytes;
    makecontext(&fibre->context, run, 0);
}
void fibre_switch(Fibre *from, Fibre *to) { swapcontext(&from->context, &to->context); }
#endif

/* A larger page than any system has. */
enum { GUARD = 64 << 10 };

char *fibre_stack(unsigned number) {
    static char *stacks;
    static unsigned accessible;
    if (!stacks) stacks = mmap(0, (size_t)MOST_THREADS * (GUARD + STACK), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) abort();
    for (; accessible <= number; accessible++) {
        char *stack = stacks + (size_t)accessible * (GUARD + STACK) + GUARD;
        if (mprotect(stack, STACK, PROT_READ | PROT_WRITE)) abort();
    }
    return stacks + (size_t)number * (GUARD + STACK) + GUARD;
}
