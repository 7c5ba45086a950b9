/* The calls of MPI that the crate makes, with plain numbers and pointers in place of the handles of an implementation. */

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

static MPI_Comm comms[2];

/* The communicators of groups of processes that make sums. */
static MPI_Comm *groups;
static int group_count;

/* Starts MPI for calls from one thread at a time, with two communicators that report errors. */
int shim_start(int *number, int *count) {
    int given;
    int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &given);
    if (code == MPI_SUCCESS && given < MPI_THREAD_SERIALIZED) code = MPI_ERR_OTHER;
    for (int i = 0; i < 2 && code == MPI_SUCCESS; i++) {
        code = MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
        if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(comms[i], MPI_ERRORS_RETURN);
    }
    if (code == MPI_SUCCESS) code = MPI_Comm_rank(comms[0], number);
    if (code == MPI_SUCCESS) code = MPI_Comm_size(comms[0], count);
    return code;
}

/* Ends MPI, together with all other processes. */
int shim_finish(void) {
    return MPI_Finalize();
}

/* The name of this host, in `size` bytes with a zero at the end. */
int shim_host(char *name, int size) {
    char text[MPI_MAX_PROCESSOR_NAME + 1] = {0};
    int len;
    int code = MPI_Get_processor_name(text, &len);
    strncpy(name, text, (size_t)size - 1);
    name[size - 1] = 0;
    return code;
}

/* The message of an error code, in `size` bytes with a zero at the end. */
void shim_message(int code, char *message, int size) {
    char text[MPI_MAX_ERROR_STRING + 1] = {0};
    int len;
    MPI_Error_string(code, text, &len);
    strncpy(message, text, (size_t)size - 1);
    message[size - 1] = 0;
}

int shim_all_gather(const void *own, int len, void *all) {
    return MPI_Allgather(own, len, MPI_BYTE, all, len, MPI_BYTE, comms[0]);
}

int shim_barrier(void) {
    return MPI_Barrier(comms[1]);
}

int shim_request_size(void) {
    return (int)sizeof(MPI_Request);
}

/* Requests are in an array of bytes of the caller, each of `shim_request_size()`. */
int shim_send(int comm, const void *bytes, int len, int to, int tag, void *request) {
    return MPI_Isend(bytes, len, MPI_BYTE, to, tag, comms[comm], (MPI_Request *)request);
}

int shim_receive(int comm, void *bytes, int len, int from, int tag, void *request) {
    return MPI_Irecv(bytes, len, MPI_BYTE, from, tag, comms[comm], (MPI_Request *)request);
}

/* Joins processes, by their numbers in an order that is theirs in the group. All members call it, and wait for each other. */
int shim_join(const int *members, int count) {
    MPI_Group all, some;
    MPI_Comm *more = realloc(groups, sizeof(MPI_Comm) * (size_t)(group_count + 1));
    if (!more) return MPI_ERR_NO_MEM;
    groups = more;
    int code = MPI_Comm_group(comms[0], &all);
    if (code == MPI_SUCCESS) code = MPI_Group_incl(all, count, members, &some);
    if (code == MPI_SUCCESS) code = MPI_Comm_create_group(comms[0], some, 0, &groups[group_count]);
    if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(groups[group_count], MPI_ERRORS_RETURN);
    group_count++;
    return code;
}

/* Begins to add numbers in place, for all members of a group or for one; `to` is negative for all. */
int shim_sum(int group, float *numbers, int len, int to, void *request) {
    MPI_Comm comm = groups[group];
    MPI_Request *begun = (MPI_Request *)request;
    int me;
    if (to < 0) return MPI_Iallreduce(MPI_IN_PLACE, numbers, len, MPI_FLOAT, MPI_SUM, comm, begun);
    int code = MPI_Comm_rank(comm, &me);
    if (code != MPI_SUCCESS) return code;
    const void *own = me == to ? MPI_IN_PLACE : numbers;
    return MPI_Ireduce(own, me == to ? numbers : NULL, len, MPI_FLOAT, MPI_SUM, to, comm, begun);
}

/* Tests a request; a request that is done is gone, and `bytes` has what a receive has brought. */
int shim_test(void *request, int *done, int *bytes) {
    MPI_Status status;
    int code = MPI_Test((MPI_Request *)request, done, &status);
    if (code == MPI_SUCCESS && *done) code = MPI_Get_count(&status, MPI_BYTE, bytes);
    return code;
}

/* The sender and size of a message with a tag that has come, from any process; the sender is -1 if there is none. */
int shim_probe(int comm, int tag, int *from, int *bytes) {
    MPI_Status status;
    int flag;
    int code = MPI_Iprobe(MPI_ANY_SOURCE, tag, comms[comm], &flag, &status);
    *from = -1;
    if (code != MPI_SUCCESS || !flag) return code;
    *from = status.MPI_SOURCE;
    return MPI_Get_count(&status, MPI_BYTE, bytes);
}

/* Takes a message that a probe has found. */
int shim_take(int comm, void *bytes, int len, int from, int tag) {
    return MPI_Recv(bytes, len, MPI_BYTE, from, tag, comms[comm], MPI_STATUS_IGNORE);
}
