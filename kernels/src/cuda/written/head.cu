// The numbers of a thread and of all threads, and the way to leave a number or to add it.

#define FIRST_THREAD ((unsigned long long)blockIdx.x * blockDim.x + threadIdx.x)
#define THREADS ((unsigned long long)gridDim.x * blockDim.x)
#define LEAVE(place, number) out[place] = STORE_OUT(adds & 1 ? LOAD_OUT(out[place]) + (number) : (number))

