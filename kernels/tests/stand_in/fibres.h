/* Fibres: functions with stacks of their own, between which one thread of the system switches. */
#ifndef FIBRES_H
#define FIBRES_H
#include <stddef.h>

#if (defined __x86_64__ || defined __aarch64__) && !defined FIBRES_BY_UCONTEXT
#define FIBRES_BY_ASSEMBLY
typedef struct { void *stack; } Fibre;
#else
#include <ucontext.h>
typedef struct { ucontext_t context; } Fibre;
#endif

/* Makes a fibre that will call `run`, which must not return. */
void fibre_begin(Fibre *fibre, char *stack, size_t bytes, void (*run)(void));
/* Goes on with `to`; returns when some fibre goes on with `from`. */
void fibre_switch(Fibre *from, Fibre *to);
/* The stack of a number, below which no memory is accessible. */
enum { STACK = 64 << 10 };
char *fibre_stack(unsigned number);

#endif
