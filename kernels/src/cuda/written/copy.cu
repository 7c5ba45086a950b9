// A copy of updated weights in another format, if there is one. An update that is skipped leaves it too.
#ifdef COPIES
#define LEAVE_COPY(i) copy[i] = STORE_COPY(w[i])
#else
#define LEAVE_COPY(i)
#endif
#define SKIP { for (unsigned long long i = FIRST_THREAD; i < N; i += THREADS) { LEAVE_COPY(i); } return; }

