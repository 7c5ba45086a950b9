/* NCCL without a network: processes with one parent meet in files of STAND_IN_FOLDER.
 *
 * A collective runs when the streams of all members have reached it, the latest that NCCL allows, and members must agree on it. Sums
 * begin with another member for each piece, as those of a ring do, and round after each addition. A send ends when it has been received.
 * If no stream of any process can go on, the processes wait for each other; one then fails and states who waits for what.
 * STAND_IN_SKIP is `r n`: the process whose RANK is r leaves out its call of number n, from 0. With STAND_IN_PATIENT processes wait for
 * each other for ever, as those of NCCL do. */
#define _GNU_SOURCE
#include "nccl.h"
#include "streams.h"
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef enum { SUCCESS = 0, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, IN_PROGRESS = 7 } Result;
typedef enum { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, SEND, RECEIVE } Kind;
static const char *const names[] = {"all-reduce", "reduce-scatter", "all-gather", "broadcast", "send", "receive"};
enum { INT8 = 0, UINT8 = 1, INT32 = 2, FLOAT16 = 6, FLOAT32 = 7, BFLOAT16 = 9 };
enum { SUM = 0, MAX = 2 };
enum { MOST = 32, TEXT = 500 };

/* A call: `peer` is the root of a broadcast or the other end of a message. */
typedef struct { Kind kind; int type, operation, peer; size_t count; const void *from; void *to; int phase; } Call;

/* What members tell each other of a communicator: collectives posted and read, messages sent to each member and taken from each. */
typedef struct {
    _Atomic uint64_t posted, read, sent[MOST], taken[MOST];
    Call call, messages[MOST];
} Member;
typedef struct { _Atomic int joined, ended; Member members[MOST]; } Meeting;
typedef struct { Meeting *meeting; char path[PATH_MAX]; int place, members; _Atomic int aborted, ending, graphs; uint64_t collectives; } Comm;

/* The processes, and what each waits for: since a number of moves of all, 0 if it does not. */
typedef struct { _Atomic int pid; _Atomic uint64_t waits_since; char why[TEXT]; } Process;
typedef struct { _Atomic uint64_t moves; _Atomic int count; Process processes[MOST]; } World;
static World *world;
static Process *own;
static uint64_t seen;

static const char *folder(void) {
    const char *folder = getenv("STAND_IN_FOLDER");
    return folder ? folder : "/tmp";
}
static void *shared(const char *path, size_t bytes) {
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, bytes)) return 0;
    void *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return memory == MAP_FAILED ? 0 : memory;
}
static void enter_world(void) {
    ONE_AT_A_TIME;
    if (world) return;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/nccl-%d", folder(), (int)getppid());
    world = shared(path, sizeof *world);
    own = &world->processes[atomic_fetch_add(&world->count, 1) % MOST];
    own->pid = getpid();
}
static void move_on(void) { atomic_fetch_add(&world->moves, 1); }

/* While it looks for work a process does not wait: what it has found may not count as a move yet. */
void nccl_looks(void) { if (own) own->waits_since = 0; }
void nccl_moved(void) {
    if (!own) return;
    seen = world->moves;
}
void nccl_wait(void) {
    if (!own) return;
    own->waits_since = seen + 1;
    /* All have looked since the same move, and there has been none after it: each process is asked at another time. */
    uint64_t moves = world->moves;
    int all = !getenv("STAND_IN_PATIENT");
    char text[MOST * TEXT / 8] = "all processes wait for each other";
    for (int i = 0; i < world->count && all; i++) {
        Process *process = &world->processes[i];
        all = process->waits_since == moves + 1 && !kill(process->pid, 0);
        size_t end = strlen(text);
        snprintf(text + end, sizeof text - end, "%s %s", i ? ";" : ":", process->why);
    }
    if (all && world->moves == moves) fail(LAUNCH_FAILED, text);
    usleep(50);
    seen = world->moves;
}

Result ncclGetVersion(int *version) { return enter_world(), *version = 22803, SUCCESS; }
const char *ncclGetErrorString(Result result) { return result == SUCCESS ? "no error" : "a stand-in's refusal"; }
static char last[TEXT];
const char *ncclGetLastError(Comm *comm) { return last; }
static Result refuse(Result result, const char *why) { return snprintf(last, sizeof last, "%s", why), result; }

typedef struct { char text[128]; } Id;
Result ncclGetUniqueId(Id *id) {
    static int count;
    memset(id, 0, sizeof *id);
    snprintf(id->text, sizeof id->text, "nccl-%d-%d-%d", (int)getppid(), (int)getpid(), count++);
    return SUCCESS;
}
typedef struct { size_t size; unsigned magic, version; int blocking; } Config;
Result ncclCommInitRankConfig(Comm **made, int members, Id id, int place, const Config *config) {
    if (config->magic != 0xcafebeef || config->version < 21800 || config->blocking) return refuse(INVALID_ARGUMENT, "a broken config");
    if (place >= members || members > MOST || !has_context()) return refuse(INVALID_ARGUMENT, "no such place");
    Comm *comm = calloc(1, sizeof *comm);
    snprintf(comm->path, sizeof comm->path, "%s/%s", folder(), id.text);
    comm->meeting = shared(comm->path, sizeof *comm->meeting);
    if (!comm->meeting) return refuse(INVALID_ARGUMENT, "no file to meet in");
    comm->place = place;
    comm->members = members;
    atomic_fetch_add(&comm->meeting->joined, 1);
    return *made = comm, IN_PROGRESS;
}
Result ncclCommGetAsyncError(Comm *comm, Result *state) {
    int waits = comm->meeting->joined < comm->members || (comm->ending && (comm->meeting->ended < comm->members || comm->graphs));
    return *state = waits ? IN_PROGRESS : SUCCESS, SUCCESS;
}
Result ncclCommFinalize(Comm *comm) {
    comm->ending = 1;
    atomic_fetch_add(&comm->meeting->ended, 1);
    return IN_PROGRESS;
}
Result ncclCommDestroy(Comm *comm) { return SUCCESS; }
Result ncclCommAbort(Comm *comm) {
    comm->aborted = 1;
    while (comm->graphs) usleep(50);
    return SUCCESS;
}

static size_t size_of(int type) { return type == FLOAT32 || type == INT32 ? 4 : type == FLOAT16 || type == BFLOAT16 ? 2 : 1; }
static void describe(char *text, size_t size, int rank, const Call *call) {
    const char *type = call->type == FLOAT32 ? "f32" : call->type == INT32 ? "i32" : call->type == FLOAT16 ? "f16" : call->type == BFLOAT16 ? "bf16" : "bytes";
    snprintf(text, size, "member %d: %s of %zu %s", rank, names[call->kind], call->count, type);
}
static Status disagree(const Comm *comm, int a, const Call *first, int b, const Call *second) {
    char texts[2][TEXT / 4], text[TEXT];
    describe(texts[0], sizeof texts[0], a, first);
    describe(texts[1], sizeof texts[1], b, second);
    snprintf(text, sizeof text, "members of a communicator of %d do not agree: %s; %s", comm->members, texts[0], texts[1]);
    return fail(LAUNCH_FAILED, text);
}

static void data_path(char *path, const Comm *comm, int from, int to) { snprintf(path, PATH_MAX, "%.4000s.%d.%d", comm->path, from, to); }
static void put(const Comm *comm, int to, const void *bytes, size_t count) {
    char path[PATH_MAX];
    data_path(path, comm, comm->place, to);
    int file = open(path, O_RDWR | O_CREAT, 0600);
    for (size_t at = 0; at < count;) {
        ssize_t done = pwrite(file, (const char *)bytes + at, count - at, at);
        if (done <= 0) abort();
        at += done;
    }
    close(file);
}
static void get(const Comm *comm, int from, int to, size_t offset, void *bytes, size_t count) {
    char path[PATH_MAX];
    data_path(path, comm, from, to);
    int file = open(path, O_RDONLY);
    for (size_t at = 0; at < count;) {
        ssize_t done = pread(file, (char *)bytes + at, count - at, offset + at);
        if (done <= 0) abort();
        at += done;
    }
    close(file);
}

static float load(int type, const void *data, size_t at) {
    if (type == FLOAT32) return ((const float *)data)[at];
    if (type == FLOAT16) return ((const _Float16 *)data)[at];
    uint32_t bits = (uint32_t)((const uint16_t *)data)[at] << 16;
    float number;
    return memcpy(&number, &bits, 4), number;
}
static void store(int type, void *data, size_t at, float number) {
    if (type == FLOAT32) { ((float *)data)[at] = number; return; }
    if (type == FLOAT16) { ((_Float16 *)data)[at] = number; return; }
    uint32_t bits;
    memcpy(&bits, &number, 4);
    int is_number = number == number;
    ((uint16_t *)data)[at] = (is_number ? bits + 0x7fff + (bits >> 16 & 1) : bits | 0x400000) >> 16;
}
static void combine(const Call *call, void *into, const void *from, size_t at) {
    if (call->type == INT32) {
        int32_t *a = (int32_t *)into + at, b = ((const int32_t *)from)[at];
        *a = call->operation == SUM ? *a + b : *a > b ? *a : b;
        return;
    }
    float a = load(call->type, into, at), b = load(call->type, from, at);
    store(call->type, into, at, call->operation == SUM ? a + b : a > b ? a : b);
}
/* Combines the members' elements from `offset` on; the piece of an element tells with whom its sum begins. */
static void reduce(const Comm *comm, const Call *call, size_t offset, int pieces) {
    size_t size = size_of(call->type), bytes = call->count * size;
    char *all = malloc(comm->members * bytes + 1), *sum = malloc(bytes + 1);
    for (int member = 0; member < comm->members; member++) get(comm, member, MOST, offset * size, all + member * bytes, bytes);
    for (size_t at = 0; at < call->count; at++) {
        int piece = pieces == 1 ? comm->place : at * pieces / call->count;
        memcpy(sum + at * size, all + (piece + 1) % comm->members * bytes + at * size, size);
        for (int next = 2; next <= comm->members; next++) combine(call, sum, all + (piece + next) % comm->members * bytes, at);
    }
    memcpy(call->to, sum, bytes - (bytes && faulty()));
    free(all);
    free(sum);
}

static int all_have(const Comm *comm, int read, uint64_t number) {
    for (int member = 0; member < comm->members; member++) {
        const Member *one = &comm->meeting->members[member];
        if ((read ? one->read : one->posted) < number) return 0;
    }
    return 1;
}
static Status collect(Comm *comm, Call *call) {
    Member *members = comm->meeting->members, *me = &members[comm->place];
    size_t bytes = call->count * size_of(call->type);
    if (call->phase == 0) {
        if (!all_have(comm, 1, comm->collectives)) return NOT_READY;
        int gives = call->kind != BROADCAST || call->peer == comm->place;
        if (gives) put(comm, MOST, call->from, call->kind == REDUCE_SCATTER ? bytes * comm->members : bytes);
        me->call = *call;
        me->posted = ++comm->collectives;
        call->phase = 1;
        move_on();
    }
    if (!all_have(comm, 0, comm->collectives)) return NOT_READY;
    for (int member = 0; member < comm->members; member++) {
        const Call *theirs = &members[member].call;
        if (theirs->kind != call->kind || theirs->type != call->type || theirs->operation != call->operation
            || theirs->peer != call->peer || theirs->count != call->count) return disagree(comm, comm->place, call, member, theirs);
    }
    if (call->kind == ALL_REDUCE) reduce(comm, call, 0, comm->members);
    if (call->kind == REDUCE_SCATTER) reduce(comm, call, comm->place * call->count, 1);
    if (call->kind == BROADCAST) get(comm, call->peer, MOST, 0, call->to, bytes - (bytes && faulty()));
    for (int member = 0; member < comm->members && call->kind == ALL_GATHER; member++)
        get(comm, member, MOST, 0, (char *)call->to + member * bytes, bytes - (bytes && faulty()));
    me->read = comm->collectives;
    move_on();
    return OK;
}
static Status send_one(Comm *comm, Call *call) {
    Member *me = &comm->meeting->members[comm->place], *there = &comm->meeting->members[call->peer];
    if (call->phase == 0) {
        if (there->taken[comm->place] < me->sent[call->peer]) return NOT_READY;
        put(comm, call->peer, call->from, call->count * size_of(call->type));
        me->messages[call->peer] = *call;
        atomic_fetch_add(&me->sent[call->peer], 1);
        call->phase = 1;
        move_on();
    }
    return there->taken[comm->place] < me->sent[call->peer] ? NOT_READY : OK;
}
static Status receive_one(Comm *comm, Call *call) {
    Member *me = &comm->meeting->members[comm->place], *there = &comm->meeting->members[call->peer];
    if (there->sent[comm->place] <= me->taken[call->peer]) return NOT_READY;
    const Call *theirs = &there->messages[comm->place];
    if (theirs->count != call->count || theirs->type != call->type) return disagree(comm, comm->place, call, call->peer, theirs);
    size_t bytes = call->count * size_of(call->type);
    get(comm, call->peer, comm->place, 0, call->to, bytes - (bytes && faulty()));
    atomic_fetch_add(&me->taken[call->peer], 1);
    move_on();
    return OK;
}

/* The calls of a group with one communicator: collectives one after the other, messages all at once. */
enum { DONE = 2, CALLS = 4 * MOST };
typedef struct { Comm *comm; int count; Call calls[CALLS]; } Round;
static Status run_round(void *data) {
    Round *round = data;
    Comm *comm = round->comm;
    int waits = 0;
    for (int i = 0; i < round->count && !comm->aborted; i++) {
        Call *call = &round->calls[i];
        if (call->phase == DONE) continue;
        int is_message = call->kind == SEND || call->kind == RECEIVE;
        if (waits && !is_message) continue;
        Status status = !is_message ? collect(comm, call) : call->kind == SEND ? send_one(comm, call) : receive_one(comm, call);
        if (status != OK && status != NOT_READY) return status;
        if (status == OK) call->phase = DONE;
        if (status == NOT_READY && !waits) {
            const char *rank = getenv("RANK");
            int end = snprintf(own->why, sizeof own->why, "rank %s, of %d members ", rank ? rank : "0", comm->members);
            describe(own->why + end, sizeof own->why - end, comm->place, call);
        }
        waits |= status == NOT_READY;
    }
    if (waits && !comm->aborted) return NOT_READY;
    for (int i = 0; i < round->count; i++) round->calls[i].phase = 0;
    return OK;
}

void nccl_captured(Status (*run)(void *data), void *data, int by) {
    if (run == run_round) ((Round *)data)->comm->graphs += by;
}

/* The group that the thread has begun: its rounds, by communicator and stream. */
static __thread int depth, rounds;
static __thread struct { Stream *stream; Round *round; } group[MOST];
static Result flush(void) {
    Status status = OK;
    for (int i = 0; i < rounds; i++) {
        Round *round = group[i].round;
        Status given = give(group[i].stream, run_round, round, offsetof(Round, calls) + round->count * sizeof(Call));
        status = status ? status : given;
        free(round);
    }
    rounds = 0;
    return status ? refuse(INVALID_USAGE, "the stream has failed") : SUCCESS;
}
Result ncclGroupStart(void) { return depth++, SUCCESS; }
Result ncclGroupEnd(void) {
    ONE_AT_A_TIME;
    return --depth ? SUCCESS : flush();
}
static int is_skipped(void) {
    static int count;
    int rank, number;
    const char *text = getenv("STAND_IN_SKIP"), *mine = getenv("RANK");
    return text && mine && sscanf(text, "%d %d", &rank, &number) == 2 && rank == atoi(mine) && number == count++;
}
static Result add(Comm *comm, Stream *stream, Call call) {
    ONE_AT_A_TIME;
    if (comm->meeting->joined < comm->members) return refuse(INVALID_USAGE, "the communicator is not joined yet");
    if (is_skipped()) return SUCCESS;
    int at = 0;
    while (at < rounds && (group[at].round->comm != comm || group[at].stream != stream)) at++;
    if (at == MOST) return refuse(INVALID_USAGE, "too many communicators in a group");
    if (at == rounds) {
        group[rounds].stream = stream;
        group[rounds++].round = calloc(1, sizeof(Round));
        group[at].round->comm = comm;
    }
    Round *round = group[at].round;
    if (round->count == CALLS) return refuse(INVALID_USAGE, "too many calls in a group");
    round->calls[round->count++] = call;
    return depth ? SUCCESS : flush();
}
Result ncclAllReduce(const void *from, void *to, size_t count, int type, int operation, Comm *comm, Stream *stream) {
    return add(comm, stream, (Call){ALL_REDUCE, type, operation, 0, count, from, to});
}
Result ncclReduceScatter(const void *from, void *to, size_t count, int type, int operation, Comm *comm, Stream *stream) {
    return add(comm, stream, (Call){REDUCE_SCATTER, type, operation, 0, count, from, to});
}
Result ncclAllGather(const void *from, void *to, size_t count, int type, Comm *comm, Stream *stream) {
    return add(comm, stream, (Call){ALL_GATHER, type, 0, 0, count, from, to});
}
Result ncclBroadcast(const void *from, void *to, size_t count, int type, int root, Comm *comm, Stream *stream) {
    return add(comm, stream, (Call){BROADCAST, type, 0, root, count, from, to});
}
Result ncclSend(const void *from, size_t count, int type, int peer, Comm *comm, Stream *stream) {
    return add(comm, stream, (Call){SEND, type, 0, peer, count, from, 0});
}
Result ncclRecv(void *to, size_t count, int type, int peer, Comm *comm, Stream *stream) {
    return add(comm, stream, (Call){RECEIVE, type, 0, peer, count, 0, to});
}
